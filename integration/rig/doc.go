// Package rig runs jobs with real verbs, DAX and persistent memory on a machine that has none of them: in virtual machines with Debian's newest kernel,
// whose software devices rxe (RoCE) and siw (iWARP) stand in for adapters, and emulated NVDIMMs for the memory.
//
// It fetches kernel and userland by apt into a cache outside of the tree, with a configuration of its own (the system's is not touched), builds siw from
// Debian's kernel source, an initramfs, and the programs under test, boots, and asserts: a job is ok if its script ends with 0. `make test-rdma` runs all of them.
//
// # A job is one file
//
// jobs/NAME.sh is a dash script, run with -e and -u as root in the guest. Comments at its top say what it needs:
//
//	# job: one line that says what it shows
//	# run: device=rxe pool=devdax     one run with these variables; one such line per run, none for a single run without variables
//	# build: NAME PACKAGE             go build; NAME, as go calls it, is in the PATH of the guest. Repeatable
//	# test: NAME PACKAGE              the same with go test -c
//	# tags: TAG,TAG                   build tags of what the job builds
//	# time: 60s                       limit of one run; default 60s, in the time of a guest that is emulated
//	# boot: NAME                      runs with the same name share a guest, one after the other; default "main"
//	# measures: yes                 it prints figures, and runs only when -run names it
//	# guests: 2                       each side is a guest of its own; such a job has its own boot
//	# cpus: 2                         the guest has two processors, where one does for most jobs: two that share a host's wait for each other
//
// A run with device=rxe is not made on a kernel whose rxe is not good enough; it is then printed as "not run".
//
// # What a script finds
//
// guest/lib.sh and guest/pool.sh are loaded before it and document their functions: hosts (two network namespaces A and B, 10.8.0.1 and 10.8.0.2, a veth between them, and an RDMA device of type
// $device in each), on, within, fsdax, devdax, fail; start_target, make_pool, mount_pool, promote_and_mount and so on. The source tree is at /src, read-only. The programs are in the PATH, Debian's perftest, rdma-core, iproute2, sqlite3,
// strace and util-linux too. Each side has an NVDIMM in fs-DAX and one in Device DAX mode. What a run leaves behind (processes, mounts, devices, namespaces) is removed after it.
//
// With two guests the script runs in each, with $sides=A or B, and `sync NAME` waits for the other. `cut_power A` has the host kill that guest's qemu, which for the guest is a loss of
// power, and start it again on the same NVDIMMs; the run goes on in it with $life=2. `between NAME` is a file that both see. What the CPU caches held is not lost that way: a missing flush is seen by integration/crash, not here.
package rig
