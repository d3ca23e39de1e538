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
		ip -batch - <<-END # each start of a program takes long in an emulated machine
			netns add A
			netns add B
			link add va mtu 9000 type veth peer name vb mtu 9000
			link set va netns A
			link set vb netns B
		END
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
	on "$1" ip -batch - <<-END
		addr add $(address "$1")/24 dev $2
		link set $2 up
		link set lo up
	END
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
		namespace "$n_" pfn nd_pmem && namespace $((n_ + 1)) dax dax_pmem && [ -b "$(pmem "$side_")" ] && [ -c "$(devdax "$side_")" ] || return 1
	done
}

# namespace NUMBER pfn|dax DRIVER: puts an NVDIMM into the mode fsdax or devdax, with what describes its pages in ordinary memory, as "ndctl create-namespace -M mem" does, which takes seconds
# in an emulated machine (Linux, drivers/nvdimm/pfn_devs.c).
namespace() {
	bus_=/sys/bus/nd
	[ ! -e "$bus_/drivers/nd_pmem/namespace$1.0" ] || echo "namespace$1.0" > "$bus_/drivers/nd_pmem/unbind"
	seed_=$(cat "$bus_/devices/region$1/$2_seed")
	cat /proc/sys/kernel/random/uuid > "$bus_/devices/$seed_/uuid" &&
		echo ram > "$bus_/devices/$seed_/mode" &&
		echo 2097152 > "$bus_/devices/$seed_/align" &&
		echo "namespace$1.0" > "$bus_/devices/$seed_/namespace" &&
		echo "$seed_" > "$bus_/drivers/$3/bind"
}

# cut_power SIDE: the host takes that guest's power, and gives it again. The request comes by a rename: the host removes it as soon as it sees it, which may be before a guest that
# creates a file has looked it up again.
cut_power() {
	: > "/host/$boot/request"
	mv "/host/$boot/request" "/host/$boot/cut.$1"
}

# between NAME: a file of this run that both guests see.
between() { echo "/host/$boot/$run.$1"; }

# sync NAME: waits for the other guest, which must come to the same place within four minutes: it may have to be started a second time.
sync() {
	: > "$(between "$1.$sides")"
	within 240 met "$1"
}
met() {
	! has_failed || fail "the other side has failed"
	[ -e "$(between "$1.A")" ] && [ -e "$(between "$1.B")" ]
}
has_failed() { [ -e "$(between failed)" ]; }

# report: after a script has failed, the ends of the logs.
report() {
	rc_=$?
	trap - EXIT
	if [ $rc_ != 0 ]; then
		[ "$sides" = AB ] || : > "$(between failed)"
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
	[ ! -e /sys/class/net/eth0 ] || ip addr flush dev eth0
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
