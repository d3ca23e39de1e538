# job: two guests; the target loses its power while the initiator appends; after it, the replica in its NVDIMM has all that was acknowledged
# run: provider=iwarp pool=devdax
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
# build: workload ./integration/workload
# guests: 2
# time: 240s
acked=/host/$boot/acked

initiator() {
	[ "$pool" != fsdax ] || fsdax A
	sync target
	make_pool 'timeout = "3s"'
	mount_pool
	sqlite_make /mnt/pool/data.db
	append_until 100 /mnt/pool/records "$acked"
	cut B
	append_fails
	sync lost
	sync recovered
}

target() {
	[ "$pool" != fsdax ] || fsdax B
	start_target
	cp -r /etc/pmemfs /var/lib/pmemfs/pools "/host/$boot/"
	sync target
	sleep 200
	fail "the power was not cut"
}

recover() {
	[ "$pool" != fsdax ] || mount_fsdax B
	mkdir -p /var/lib/pmemfs /run/pmemfs
	cp -r "/host/$boot/pmemfs" /etc/
	cp -r "/host/$boot/pools" /var/lib/pmemfs/
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
