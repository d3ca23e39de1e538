# job: a mount with verbs/iwarp, pure Go, on one side and siw on the other; kill -9, promote, mount the replica: all that was acknowledged is there
# run: device=siw siw=B
# run: device=siw siw=A
# run: device=siw siw=B crc=true
# run: device=siw siw=A crc=true
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
# build: workload ./integration/workload
# time: 150s
# boot: interop
kind=$device
device=
hosts
device=$kind
rdma_add "$siw"

pool=memory # siw can register it
# rdma_keys SIDE: of the two sides only one has an RDMA device.
rdma_keys() {
	if [ "$1" = "$siw" ]; then
		printf 'provider = "ibverbs"\ndevice = "%s"\n' "$(rdma_name "$1")"
	else
		printf 'provider = "iwarp"\ncrc = %s\n' "${crc:-false}"
	fi
}

start_target
make_pool
mount_pool
status_has "InSync.*over $([ "$siw" = A ] && echo ibverbs || echo iwarp)" || fail "another status: $(cat /tmp/status.log)"
fail_over
umount_and_check
