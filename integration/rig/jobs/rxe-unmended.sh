# job: the kernel's own rxe copies to wrong places with on-demand paging: a pool on a DAX file system is refused with it, before a byte is written
# run: device=rxe provider=ibverbs pool=fsdax method=auto
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
if [ ! -e /rdma_rxe.unmended.ko ]; then
	echo "the rxe of this kernel is right"
	exit 0
fi
rmmod rdma_rxe
insmod /rdma_rxe.unmended.ko
hosts
fsdax A
fsdax B
start_target
make_pool
refuses "on-demand paging" mount_pool
