# job: latency and bandwidth of the provider ibverbs beside perftest's programs, and of a file transfer beside ib_write_bw, in alternation
# run: device=siw
# run: device=rxe
# build: pmemfs ./cmd/pmemfs
# build: sendfile ./examples/sendfile
# build: fabric ./integration/bench/fabric
# time: 30m
# boot: perftest
# cpus: 2
# measures: yes
hosts
# A thread of the kernel that has to work for siw or rxe on a processor where a program polls is to run at once. Debian's kernel lets it wait for the next tick.
[ -e /sys/kernel/debug/sched ] || mount -t debugfs debugfs /sys/kernel/debug
echo full > /sys/kernel/debug/sched/preempt
# The bounds are those of a broken provider, not of a slow one: the guest's processors are shares of a host that does other work.
fabric -latency 100 -bandwidth 0.02 -sendfile
