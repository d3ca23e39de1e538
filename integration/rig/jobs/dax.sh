# job: pools on Device DAX and on fs-DAX without a target: the tests of internal/pmem and internal/pool on both, and every command on a pool of two devices
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
# build: workload ./integration/workload
# test: pmem.test ./internal/pmem
# test: pool.test ./internal/pool
# time: 180s
fsdax A
first=$(devdax A) second=$(devdax B)

# CLWB takes no fault in the emulated processor, so one test of internal/pmem cannot pass here.
export PMEMFS_DEVDAX=$first PMEMFS_FSDAX=/mnt/A
on_dax() { pmem.test -test.skip TestTruncatedFileGivesFaultError "$@"; }
go_test on_dax internal/pmem
pools_on_dax() { pool.test -test.run 'Device|TestCreate|TestGrow|TestOpen_|TestPrivate|TestRemove|TestInspect' "$@"; }
go_test pools_on_dax internal/pool
cd /tmp

# Nothing is formatted silently.
mkdir -p /etc/pmemfs /mnt/pool
printf 'PMEMPOOLSET\nAUTO %s\nAUTO %s\n' "$first" "$second" > /etc/pmemfs/two.set
printf 'PMEMPOOLSET\nAUTO %s\n' "$first" > /etc/pmemfs/one.set
printf 'PMEMPOOLSET\n32M %s\n' "$first" > /etc/pmemfs/part.set
refuses 'write AUTO' pmemfs mkpool /etc/pmemfs/part.set
pmemfs mkpool --force /etc/pmemfs/one.set
refuses 'holds data' pmemfs mkpool /etc/pmemfs/one.set
refuses 'repeat it with --force' pmemfs rmpool /etc/pmemfs/one.set
pmemfs mount --log-file /tmp/one.log /etc/pmemfs/one.set /mnt/pool
status_has 'persistent memory: Device DAX' || fail "$(cat /tmp/status.log)"
refuses 'in use by process' pmemfs fsck /etc/pmemfs/one.set

# A kill in the middle of an append loop, and growth by a second device under it.
pmemfs mkpool --force "$(printf 'PMEMPOOLSET\nAUTO %s\n' "$second" > /etc/pmemfs/b.set; echo /etc/pmemfs/b.set)"
cp /etc/pmemfs/one.set /tmp/one.set
cp /etc/pmemfs/two.set /etc/pmemfs/one.set
refuses 'holds data' pmemfs grow /mnt/pool
pmemfs rmpool --force /etc/pmemfs/b.set
append_until 50 /mnt/pool/records /tmp/acked
pmemfs grow /mnt/pool
append_until 100 /mnt/pool/more /tmp/acked.more
kill_mount
pmemfs fsck /etc/pmemfs/two.set
pmemfs mount --log-file /tmp/two.log /etc/pmemfs/two.set /mnt/pool
workload check-append /mnt/pool/records /tmp/acked
workload check-append /mnt/pool/more /tmp/acked.more
workload msync /mnt/pool/mapped first
head -c 3000000 /dev/urandom > /tmp/big
cp /tmp/big /mnt/pool/big
pmemfs sync /mnt/pool
kill_mount

# What needs no mount: the log is replayed in memory, and not a byte of the devices changes.
pmemfs status /etc/pmemfs/two.set
pmemfs fsck /etc/pmemfs/two.set
pmemfs ls -l /etc/pmemfs/two.set > /tmp/ls
grep big /tmp/ls
pmemfs cat /etc/pmemfs/two.set /big | cmp - /tmp/big
pmemfs export /etc/pmemfs/two.set /tmp/out
cmp /tmp/out/big /tmp/big
pmemfs dump --super --log /etc/pmemfs/two.set > /tmp/dump
pmemfs mount -o ro --log-file /tmp/ro.log /etc/pmemfs/two.set /mnt/pool
cmp /mnt/pool/big /tmp/big
pmemfs umount /mnt/pool
pmemfs dump --super --log /etc/pmemfs/two.set | cmp - /tmp/dump

# A platform file that the kernel contradicts is followed, and told.
echo 'eadr = true' > /etc/pmemfs/platform.toml
pmemfs mount --log-file /tmp/eadr.log /etc/pmemfs/two.set /mnt/pool
status_has 'declares eadr, but the kernel says' || fail "$(cat /tmp/status.log)"
workload check-msync /mnt/pool/mapped first
pmemfs umount /mnt/pool
pmemfs fsck /etc/pmemfs/two.set
pmemfs rmpool --force /etc/pmemfs/two.set
