//go:build linux && cgo && rdma

package interop

import (
	"context"
	"flag"
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
	"github.com/pmemfs/pmemfs/verbs/provider"
)

var (
	siwName    = flag.String("siw", "", "`name` of the siw device in this network namespace")
	siwAddress = flag.String("siw-address", "10.8.0.1", "its IP `address`")
	goNetns    = flag.String("go-netns", "", "`path` of the network namespace of the pure-Go provider")
	goAddress  = flag.String("go-address", "10.8.0.2", "IP `address` there")
)

func openSiw(t testing.TB) verbs.Device {
	t.Helper()
	d, err := provider.Open(provider.Options{Name: provider.IBVerbs, Device: *siwName, GID: provider.AnyGID})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// openGo opens the pure-Go provider, in the other namespace.
func openGo(o iwarp.Options) verbs.Device { return elsewhere{iwarp.New(o), *goNetns} }

// elsewhere is a device whose sockets are in another network namespace.
type elsewhere struct {
	verbs.Device
	netns string
}

func (e elsewhere) Listen(addr string) (l verbs.Listener, err error) {
	err = in(e.netns, func() (err error) {
		l, err = e.Device.Listen(addr)
		return err
	})
	return l, err
}

func (e elsewhere) Connect(ctx context.Context, qp verbs.QP, addr string, private []byte) (answer []byte, err error) {
	err = in(e.netns, func() (err error) {
		answer, err = e.Device.Connect(ctx, qp, addr, private)
		return err
	})
	return answer, err
}

// dial makes a TCP connection from the other namespace.
func dial(addr string) (c net.Conn, err error) {
	err = in(*goNetns, func() (err error) {
		c, err = net.Dial("tcp", addr)
		return err
	})
	return c, err
}

// in runs f on a thread in the network namespace at path. The goroutine ends with the thread locked, so the runtime does not use it
// for anything else.
func in(path string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-result
}
