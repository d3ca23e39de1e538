# job: the software devices store by the CPU, so on persistent memory APM is refused unless the platform file declares eADR
# run: provider=iwarp pool=fsdax method=apm
# run: device=rxe provider=ibverbs pool=devdax method=apm
# build: pmemfs ./cmd/pmemfs
# build: pmemfs-target ./cmd/pmemfs-target
if [ "$pool" = fsdax ]; then
	fsdax A
	fsdax B
fi
hosts
start_target
make_pool
refuses "CLAIM refused: APM: .* does not declare eadr" mount_pool
sed -i 's/^method = .*/method = "auto"/' /etc/pmemfs/pmemfs.toml
mount_pool
method=gpspm
uses_method
status_has "APM.*does not declare eadr" || fail "the status does not say why APM is not used: $(cat /tmp/status.log)"
