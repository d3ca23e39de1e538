//go:build linux && cgo && rdma

// The tests that need an RDMA device. PMEMFS_RDMA names its kind, rxe or siw, PMEMFS_RDMA_DEVICE the device, PMEMFS_RDMA_ADDR an IP address of its
// network interface, PMEMFS_RDMA_NETDEV that interface, PMEMFS_RDMA_DAX a Device DAX of persistent memory. Both ends of the connections are this process. The
// interface is taken down and the device removed, and both brought back.
package ibverbs

import (
	"net"
	"os"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

func env(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("set %s: these tests need an RDMA device", name)
	}
	return v
}

func open(t testing.TB) verbs.Device {
	t.Helper()
	d, err := Open(Options{Device: env(t, "PMEMFS_RDMA_DEVICE"), GID: AnyGID})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func listenAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort(env(t, "PMEMFS_RDMA_ADDR"), "0")
}

func isSIW(t testing.TB) bool { return env(t, "PMEMFS_RDMA") == "siw" }

func TestProvider(t *testing.T) {
	var limits []verbstest.Limit
	if isSIW(t) {
		limits = append(limits, verbstest.TerminateHidden, verbstest.ReadsUnchecked, verbstest.EmptyReadsFilled)
	}
	verbstest.TestProvider(t, func(t testing.TB) (a, b verbs.Device, addr string) { return open(t), open(t), listenAddr(t) }, limits...)
}
