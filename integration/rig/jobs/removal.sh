# job: the target's RDMA device, then the initiator's, is pulled in the middle of writes: nobody hangs, the way comes back, and nothing acknowledged is lost
# run: device=siw provider=ibverbs pool=memory
# run: device=rxe provider=ibverbs pool=memory
# boot: ibverbs
# cpus: 2
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
# build: workload ./integration/workload
# time: 180s
hosts
start_target
make_pool 'timeout = "20s"'
mount_pool
append_until 50 /mnt/pool/records /tmp/acked

echo "the target loses its device, and ends; with the device, it is started again: the same fsync goes on"
rdma_remove B
within 20 status_has "^target .*: Suspended"
within 20 gone "$target"
if wait "$target"; then fail "the target ended without an error"; fi
rdma_gone B
before=$(wc -l < /tmp/acked)
rdma_add B
run_target
within 60 acknowledged $((before + 50)) /tmp/acked
status_has "^HEALTHY" || fail "$(cat /tmp/status.log)"

echo "the initiator loses its device: fsync fails, and status and log say why, and what to do"
rdma_remove A
append_fails
status_has "^FAILED: .*RDMA device of this machine was removed.* mount again" || fail "$(cat /tmp/status.log)"
grep -q "replica Failed, was .*RDMA device of this machine was removed" /tmp/mount.log || fail "$(cat /tmp/mount.log)"
umount_pool
rdma_gone A

echo "with the device, the pool is mounted again, and the target gets a copy"
rdma_add A
mount_pool
workload check-append /mnt/pool/records /tmp/acked
status_has "^HEALTHY" || fail "$(cat /tmp/status.log)"
pmemfs umount /mnt/pool
