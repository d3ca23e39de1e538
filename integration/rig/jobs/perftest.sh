# job: latency and bandwidth of the provider ibverbs beside perftest's programs, and of a file transfer beside ib_write_bw, in alternation
# run: device=siw
# run: device=rxe
# build: pmemfs ./cmd/pmemfs
# build: sendfile ./examples/sendfile
# build: fabric ./integration/bench/fabric
# time: 10m
# boot: perftest
# measures: yes
hosts
# The bounds are those of a broken provider, not of a slow one: the guest's processors are shares of a host that does other work.
fabric -rounds 2 -iterations 100 -bytes 4194304 -latency 100 -bandwidth 0.02 -sendfile
