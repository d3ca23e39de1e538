# job: two guests; the target loses its power while the initiator appends; after it, the replica in its NVDIMM has all that was acknowledged
# run: provider=iwarp pool=devdax
# run: device=rxe provider=ibverbs pool=fsdax
# run: device=siw provider=ibverbs pool=devdax
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
# build: workload ./integration/workload
# guests: 2
# time: 5m
acked=$(between acked)
kept=$(between etc) # what the target has on its disk, outside of its pool

initiator() {
	[ "$pool" != fsdax ] || fsdax A
	sync target
	make_pool 'timeout = "10s"'
	mount_pool
	sqlite_make /mnt/pool/data.db
	append_until 100 /mnt/pool/records "$acked"
	cut_power B
	append_fails # nobody tells that the other side is gone
	sync lost
	umount_pool
	sync recovered
}

target() {
	[ "$pool" != fsdax ] || fsdax B
	start_target
	mkdir "$kept"
	cp -r /etc/pmemfs /var/lib/pmemfs/pools "$kept"
	sync target
	until has_failed; do sleep 1; done
	fail "the other side has failed"
}

recover() {
	[ "$pool" != fsdax ] || mount_fsdax B
	mkdir -p /var/lib/pmemfs /run/pmemfs
	cp -r "$kept/pmemfs" /etc/
	cp -r "$kept/pools" /var/lib/pmemfs/
	sync lost
	run_target
	promote_and_mount
	workload check-append /mnt/replica/records "$acked"
	sqlite_check /mnt/replica/data.db
	umount_and_check
	sync recovered
}

hosts
case $sides$life in
A1) initiator ;;
B1) target ;;
B2) recover ;;
esac
