# job: sqlite3, msync and an append loop on a mount with a target; kill -9, promote, mount the replica: all that was acknowledged is there
# run: provider=iwarp pool=fsdax method=gpspm
# run: provider=iwarp pool=devdax method=gpspm
# run: provider=iwarp pool=fsdax method=apm platform=eadr=true
# run: device=rxe provider=ibverbs pool=fsdax method=flush
# run: device=rxe provider=ibverbs pool=devdax method=gpspm
# run: device=rxe provider=ibverbs pool=devdax method=apm platform=eadr=true
# run: device=siw provider=ibverbs pool=devdax method=gpspm
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
# build: workload ./integration/workload
# boot: failover
# time: 150s
hosts
if [ "$pool" = fsdax ]; then
	fsdax A
	fsdax B
fi
start_target
make_pool
mount_pool
uses_method
fail_over
refuses "promoted elsewhere at term" mount_pool
umount_and_check
