# job: verbs/ibverbs passes the suite of all providers
# time: 4m
# tags: rdma
# test: ibverbs.test ./verbs/ibverbs
# run: device=rxe
# run: device=siw
hosts
export PMEMFS_RDMA="$device" PMEMFS_RDMA_DEVICE="$(rdma_name A)" PMEMFS_RDMA_ADDR="$(address A)"
on_a() { on A ibverbs.test "$@"; }
go_test on_a verbs/ibverbs
