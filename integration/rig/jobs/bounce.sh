# job: pools that the device cannot have: refused, and through bounce buffers once they are configured on each side
# run: device=siw provider=ibverbs pool=disk method=gpspm
# run: device=siw provider=ibverbs pool=fsdax method=gpspm
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
# build: workload ./integration/workload
# time: 150s
hosts
for side in A B; do
	if [ "$pool" = fsdax ]; then fsdax $side; else disk $side; fi
done
start_target
make_pool
refuses "bounce = .64M." mount_pool
{ echo 'bounce = "4M"'; cat /etc/pmemfs/pmemfs.toml; } > /tmp/bounced.toml
mv /tmp/bounced.toml /etc/pmemfs/pmemfs.toml
refuses "CLAIM refused: .*bounce = .64M.*RDMA device of the target cannot have the pool" mount_pool
daemon=$(pidof pmemfs-target)
kill "$daemon"
within 20 gone "$daemon"
bounce=8M
start_target
mount_pool
status_has "^target .*: InSync, durability media (through bounce buffers of 4 MiB here and of 8 MiB at the target), GPSPM over ibverbs at" ||
	fail "not through bounce buffers: $(cat /tmp/status.log)"
dd if=/dev/urandom of=/mnt/pool/large bs=1M count=12 conv=fsync 2> /dev/null
cp /mnt/pool/large /tmp/large
fail_over
cmp /mnt/replica/large /tmp/large
umount_and_check
