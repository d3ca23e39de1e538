# job: verbs/iwarp, pure Go on a side without RDMA device, and the kernel's siw on the other talk to each other
# run: device=siw connects=go
# run: device=siw connects=siw
# run: device=siw connects=hostile
# test: interop.test ./integration/rig/interop
# tags: rdma
# time: 150s
# boot: interop
kind=$device
device=
hosts
device=$kind
rdma_add A

# suite NAMES [ARGUMENTS...]: the tests of the package with these names. There must be some.
suite() {
	names_=$1; shift
	on A interop.test -siw "$(rdma_name A)" -go-netns /run/netns/B -test.v -test.run "$names_" "$@" > /tmp/suite.log 2>&1 || {
		grep -e '^ *--- FAIL' -e '^panic:' -e '^ *[a-z_]*\.go:[0-9]*: ' /tmp/suite.log || true
		fail "$names_"
	}
	passed_=$(grep -c '^ *--- PASS' /tmp/suite.log) || fail "no tests are called $names_"
	echo "$passed_ passed of $names_"
}

# setting NAME VALUE COMMAND...: runs a command while siw, as initiator, has this setting.
setting() {
	file_=/sys/module/siw/parameters/$1
	value_=$2
	before_=$(cat "$file_")
	shift 2
	echo "$value_" > "$file_"
	if "$@"; then rc_=0; else rc_=$?; fi
	echo "$before_" > "$file_"
	return $rc_
}

# What the set-up has influence on; the rest of the suite is run once in each direction.
some='/^(Connect|Reject|Transfer|ManyReads|Fence)$'

case $connects in
go)
	suite TestGoConnects/Plain
	suite "TestGoConnects/^(CRC|Revision1|Revision1CRC|OneRead|ManyReads)\$$some"
	;;
siw)
	# Without the peer-to-peer set-up siw sends no first frame, which a responder has to wait for.
	suite TestSiwConnects/Plain -test.skip //ResponderFirst
	suite "TestSiwConnects/^(CRC|OneRead|ManyReads)\$$some"
	suite 'TestRequest|TestSiwNudges' -request '10 02'
	setting mpa_version 1 suite "TestRequest|TestSiwConnects/^(Plain|CRC)\$$some" -request '00 01'
	setting mpa_crc_required 1 suite "TestRequest|TestSiwConnects/^Plain\$$some" -request '50 02'
	setting peer_to_peer 1 suite "TestRequest|TestSiwConnects/^(Plain|CRC)\$$some" -request '10 02 peer-to-peer'
	setting peer_to_peer 1 suite 'TestSiwConnects/^(Plain|CRC)$/ResponderFirst'
	;;
hostile) suite 'TestSiwRefuses|TestBadFrames' ;;
esac
