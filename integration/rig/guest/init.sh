#!/bin/sh
# The first process of the guest. It gets the kernel's file systems and the host's shared directories, and runs what the list of this guest says, one run after the
# other. All that it tells the host is files below /host: ready, N.out and N.rc of each run N, dmesg. The kernel's command line gives boot and sides (AB, A or B). After a loss of
# power it goes on with the run that was under way, in its next life.
export PATH=/programs:/usr/bin HOME=/root
# The applet starts faster than the program of util-linux, which the jobs have.
mount() { busybox mount "$@"; }
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# now: seconds of the real-time clock, which is the host's, and of this kernel.
now() {
	read -r rtc < /sys/class/rtc/rtc0/since_epoch
	read -r seconds _ < /proc/uptime
}
now
rtc_before=$rtc seconds_before=${seconds%.*}
mkdir -p /dev/pts /dev/shm /programs
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
ln -sf /proc/self/fd /dev/fd
for word in $(cat /proc/cmdline); do
	case $word in rig.*=*) export "${word#rig.}" ;; esac
done
modprobe -a virtio_pci 9pnet_virtio 9p 2>/dev/null
share() { mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2" || { echo "no share $1"; poweroff -f; }; }
share host /host access=any
share programs /programs ro,cache=loose
share source /src ro,cache=loose
dir=/host/$boot/$sides

unset -f mount

. /lib.sh
# siw is not in every guest, and a name that is built into the kernel is no module.
for module in nfit nd_pmem dax_pmem device_dax ext4 fuse veth virtio_net ib_uverbs rdma_ucm rdma_rxe siw; do modprobe "$module" 2>/dev/null; done
ip link set lo up
ulimit -l unlimited
prepare_nvdimms > "$dir/nvdimms" 2>&1 || { cat "$dir/nvdimms"; poweroff -f; }
# A kernel that has to start on a busy host can take the rate of its processor for another one. Then all limits here would be wrong: the host starts the guest again.
now
real=$((rtc - rtc_before)) passed=$((${seconds%.*} - seconds_before))
if [ $passed -gt $((real + real / 4 + 2)) ] || [ $real -gt $((passed + passed / 4 + 2)) ]; then
	echo "the clock is wrong: $passed s passed in $real s"
	poweroff -f
fi
echo "$(uname -r) ready after $seconds s, $passed s in $real s" > "$dir/ready"

export run life
while read -r run limit script variables <&3; do
	[ ! -e "$dir/$run.rc" ] || continue # done in an earlier life
	echo started >> "$dir/$run.lives"
	life=$(wc -l < "$dir/$run.lives")
	(cd /tmp && exec env $variables timeout -k 5 "$limit" sh -eu -c '. /lib.sh; . /pool.sh; trap report EXIT; . "$0"' "/host/jobs/$script") > "$dir/$run.out" 2>&1 < /dev/null 3<&-
	rc=$?
	clean >> "$dir/$run.out" 2>&1
	echo $rc > "$dir/$run.tmp"
	mv "$dir/$run.tmp" "$dir/$run.rc"
done 3< "$dir/list"
dmesg > "$dir/dmesg"
poweroff -f
