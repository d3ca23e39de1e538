# job: the guest has what the other jobs rely on: two sides that reach each other over an RDMA device, DAX without page cache, Device DAX
# boot: ibverbs
# cpus: 2
# run: device=siw
# run: device=rxe
hosts
on A ping -c 1 -W 5 10.8.0.2
for side in A B; do
	fsdax $side
	grep "/mnt/$side ext4 .*dax=always" /proc/mounts
	[ -c "$(devdax $side)" ] || fail "no $(devdax $side)"
done
# siw can leave the first request of a connection lying for ever (verbs/ibverbs/nudge.go), and rping does nothing about that.
ping_pong() {
	background server on A timeout 6 rping -s -a 10.8.0.1 -C 5
	sleep 1
	on B timeout 5 rping -c -a 10.8.0.1 -C 5 -v
}
ping_pong || { sleep 3; ping_pong; } || { sleep 3; ping_pong; }
rdma link show
