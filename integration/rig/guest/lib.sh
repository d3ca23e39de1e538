# What the scripts of jobs have at hand. With one guest the two sides A and B are network namespaces in it; with two guests each is one side.

# address SIDE
address() { case $1 in A) echo 10.8.0.1 ;; B) echo 10.8.0.2 ;; esac; }

# fail TEXT...: ends the run.
fail() { echo "FAILED: $*"; exit 1; }

# on SIDE COMMAND...: runs a command in the network of a side; its mounts are seen everywhere.
on() {
	side_=$1; shift
	if [ "$sides" = AB ]; then nsenter --net="/run/netns/$side_" "$@"; else "$@"; fi
}

# within SECONDS COMMAND...: repeats a command until it succeeds.
within() {
	left_=$(($1 * 5)); shift
	until "$@"; do
		left_=$((left_ - 1))
		[ $left_ -gt 0 ] || fail "not within the time: $*"
		sleep 0.2
	done
}

# refuses PATTERN COMMAND...: the command must fail, and say something that matches.
refuses() {
	pattern_=$1; shift
	if said_=$("$@" 2>&1); then fail "it succeeded: $*: $said_"; fi
	echo "$said_"
	echo "$said_" | grep -q -- "$pattern_" || fail "no '$pattern_' in what $* said"
}

# background NAME COMMAND...: runs a command beside the script; its output is printed if the script fails. $! is its process.
background() {
	name_=$1; shift
	if [ "$1" = on ]; then # without a shell in between, which would be $!
		side_=$2; shift 2
		[ "$sides" != AB ] || set -- nsenter --net="/run/netns/$side_" "$@"
	fi
	"$@" > "/tmp/$name_.log" 2>&1 &
}

# hosts: the network of the two sides, and an RDMA device of type $device, if set, on each: rdma_a and rdma_b.
hosts() {
	if [ "$sides" = AB ]; then
		ip netns add A
		ip netns add B
		ip link add va mtu 9000 type veth peer name vb mtu 9000
		ip link set va netns A
		ip link set vb netns B
		host A va
		host B vb
		[ -z "${device:-}" ] || { rdma_add A; rdma_add B; }
	else
		host "$sides" eth0
		[ -z "${device:-}" ] || rdma_add "$sides"
	fi
}

# host SIDE INTERFACE
host() {
	on "$1" ip addr add "$(address "$1")/24" dev "$2"
	on "$1" ip link set "$2" up
	on "$1" ip link set lo up
}

# rdma_name SIDE, interface_of SIDE
rdma_name() { case $1 in A) echo rdma_a ;; B) echo rdma_b ;; esac; }
interface_of() { if [ "$sides" != AB ]; then echo eth0; elif [ "$1" = A ]; then echo va; else echo vb; fi; }

# rdma_add SIDE, rdma_remove SIDE: plugs the RDMA device in, and pulls it. siw is gone only when the last program has closed it: rdma_gone SIDE waits for that.
rdma_add() {
	on "$1" rdma link add "$(rdma_name "$1")" type "$device" netdev "$(interface_of "$1")"
	within 10 active "$(rdma_name "$1")"
}
rdma_remove() { on "$1" rdma link delete "$(rdma_name "$1")" & }
rdma_gone() { within 30 [ ! -e "/sys/class/infiniband/$(rdma_name "$1")" ]; }
active() { rdma link show "$1/1" | grep -q 'state ACTIVE'; }

# nvdimm SIDE: number of the first of the two NVDIMMs of a side.
nvdimm() { if [ "$sides$1" = ABB ]; then echo 2; else echo 0; fi; }

# devdax SIDE: the character device. pmem SIDE: the block device.
devdax() { echo "/dev/dax$(($(nvdimm "$1") + 1)).0"; }
pmem() { echo "/dev/pmem$(nvdimm "$1")"; }

# fsdax SIDE: makes a file system and mounts it on /mnt/SIDE, without page cache.
fsdax() {
	mkfs.ext4 -q -F -b 4096 "$(pmem "$1")"
	mount_fsdax "$1"
}
mount_fsdax() {
	mkdir -p "/mnt/$1"
	mount -o dax=always "$(pmem "$1")" "/mnt/$1"
}

# disk SIDE: the same with page cache, as on a disk.
disk() {
	mkfs.ext4 -q -F -b 4096 "$(pmem "$1")"
	mkdir -p "/mnt/$1"
	mount -o dax=never "$(pmem "$1")" "/mnt/$1"
}

# prepare_nvdimms: once per image, of each side the first in fs-DAX mode, the second in Device DAX mode.
prepare_nvdimms() {
	for side_ in $(echo "$sides" | sed 's/./& /g'); do
		n_=$(nvdimm "$side_")
		[ -e "$(devdax "$side_")" ] && continue
		ndctl create-namespace -f -e "namespace$n_.0" -m fsdax -M mem && ndctl create-namespace -f -e "namespace$((n_ + 1)).0" -m devdax -M mem || return 1
	done
}

# cut SIDE: the host takes that guest's power, and gives it again.
cut() { : > "/host/$boot/cut.$1"; }

# sync NAME: waits for the other guest, which must come to the same place within two minutes.
sync() {
	mkdir -p "/host/$boot/sync"
	: > "/host/$boot/sync/$1.$sides"
	within 120 met "$1"
}
met() {
	[ ! -e "/host/$boot/failed" ] || fail "the other side has failed"
	[ -e "/host/$boot/sync/$1.A" ] && [ -e "/host/$boot/sync/$1.B" ]
}

# report: after a script has failed, the ends of the logs.
report() {
	rc_=$?
	trap - EXIT
	if [ $rc_ != 0 ]; then
		[ "$sides" = AB ] || : > "/host/$boot/failed"
		for log_ in /tmp/*.log; do
			[ ! -s "$log_" ] || { echo "--- $log_"; tail -n 40 "$log_"; }
		done
	fi
	exit $rc_
}

# clean: after a run nothing of it is left.
clean() {
	for process_ in /proc/[1-9]*; do
		pid_=${process_#/proc/}
		if [ "$pid_" != 1 ] && readlink "$process_/exe" > /dev/null 2>&1; then kill -9 "$pid_" 2>/dev/null; fi
	done
	for try_ in 1 2 3; do
		awk '$2 ~ "^/(mnt|tmp)" {print $2}' /proc/mounts | sort -r | while read -r mount_; do umount -l "$mount_"; done
	done
	for link_ in rdma_a rdma_b; do [ ! -e "/sys/class/infiniband/$link_" ] || timeout 20 rdma link delete $link_; done
	rmmod rdma_rxe && modprobe rdma_rxe # a job may have loaded another one
	for netns_ in /run/netns/*; do [ ! -e "$netns_" ] || ip netns delete "${netns_##*/}"; done
	rm -rf /tmp/* /var/tmp/* /dev/shm/* /run/pmemfs /var/lib/pmemfs /etc/pmemfs/*
}

# go_test PROGRAM DIRECTORY: runs the tests of a package, in its directory of the source tree. A test that skips itself is a failure: here is what it wants. So is a
# run without any test.
go_test() {
	(cd "/src/$2" && "$1" -test.v) > "/tmp/$1.log" 2>&1 || {
		grep -B 30 -e '^--- FAIL' -e '^ *--- FAIL' -e '^panic:' "/tmp/$1.log" || true
		fail "tests of $2"
	}
	skipped_=$(sed -n 's/^ *--- SKIP: \([^ ]*\).*/\1/p' "/tmp/$1.log")
	[ -z "$skipped_" ] || fail "tests of $2 were skipped: $skipped_"
	grep -q '^--- PASS' "/tmp/$1.log" || fail "no test of $2 was run"
	echo "$2: $(grep -c '^--- PASS' "/tmp/$1.log") tests passed"
}
