# job: examples/hello makes a pool on the other side, reads its greeting back and translates it, also after the target was killed
# run: provider=iwarp pool=fsdax
# run: device=rxe provider=ibverbs pool=devdax
# run: device=siw provider=ibverbs pool=devdax
# build: hello ./examples/hello
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
hosts
[ "$pool" = devdax ] || fsdax B
start_target
hello() { on A hello -target "$(address B):7470" -pool data.set -provider "$provider"; }
expect() {
	said=$(hello)
	[ "$said" = "$1" ] || fail "it said '$said', not '$1'"
}
expect "Hello world!"
expect "¡Hola Mundo!"
kill -9 "$target"
run_target
expect "Hello world!"
