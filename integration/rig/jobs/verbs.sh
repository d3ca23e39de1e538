# job: verbs/ibverbs passes the suite of all providers, sees a port that goes down, a peer and a device that vanish, and allocates nothing
# boot: ibverbs
# cpus: 2
# time: 5m
# tags: rdma
# test: ibverbs.test ./verbs/ibverbs
# run: device=rxe
# run: device=siw
hosts
export PMEMFS_RDMA="$device" PMEMFS_RDMA_DEVICE="$(rdma_name A)" PMEMFS_RDMA_ADDR="$(address A)" PMEMFS_RDMA_NETDEV="$(interface_of A)" PMEMFS_RDMA_DAX="$(devdax A)"
on_a() { on A ibverbs.test "$@"; }
go_test on_a verbs/ibverbs
