//go:build linux && cgo && rdma

package interop

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// TestGoConnects runs the suite of all providers with the pure-Go provider as initiator. siw's check of bounds wraps around the address
// space; a later one stops that, without a Terminate that says so. What siw says otherwise is looked at by TestSiwRefuses.
func TestGoConnects(t *testing.T) {
	for _, c := range []struct {
		name string
		o    iwarp.Options
	}{
		{"Plain", iwarp.Options{}},
		{"CRC", iwarp.Options{CRC: true}},
		{"Revision1", iwarp.Options{Revision1: true}},
		{"Revision1CRC", iwarp.Options{Revision1: true, CRC: true}},
		{"OneRead", iwarp.Options{IRD: 1, ORD: 1}},
		{"ManyReads", iwarp.Options{IRD: 128, ORD: 128}},
	} {
		t.Run(c.name, func(t *testing.T) {
			verbstest.TestProvider(t, func(t testing.TB) (verbs.Device, verbs.Device, string) {
				return openGo(c.o), openSiw(t), net.JoinHostPort(*siwAddress, "0")
			}, verbstest.ReadsUnchecked, verbstest.EmptyReadsFilled, verbstest.TerminateHidden)
		})
	}
}

// TestSiwConnects runs it with siw as initiator.
func TestSiwConnects(t *testing.T) {
	for _, c := range []struct {
		name string
		o    iwarp.Options
	}{
		{"Plain", iwarp.Options{}},
		{"CRC", iwarp.Options{CRC: true}},
		{"OneRead", iwarp.Options{IRD: 1, ORD: 1}},
		{"ManyReads", iwarp.Options{IRD: 128, ORD: 128}},
	} {
		t.Run(c.name, func(t *testing.T) {
			verbstest.TestProvider(t, func(t testing.TB) (verbs.Device, verbs.Device, string) {
				return openSiw(t), openGo(c.o), net.JoinHostPort(*goAddress, "0")
			}, verbstest.TerminateHidden)
		})
	}
}

var request = flag.String("request", "10 02", "how the set-up request of siw must begin: flags and revision in `hex`, and \"peer-to-peer\" if it asks for that")

// TestRequest looks at the request that siw sends: the settings that a job has made must be those of the connections of the suite.
func TestRequest(t *testing.T) {
	var l net.Listener
	check(t, in(*goNetns, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(*goAddress, "0"))
		return err
	}))
	got := make(chan []byte, 1)
	go func() {
		b := make([]byte, 24) // revision 1 has no words: private data are in their place
		if c, err := l.Accept(); err == nil {
			_, _ = io.ReadFull(c, b) // what is missing is zero
			_ = c.Close()            // siw learns it as the end of the connection
		}
		got <- b
	}()
	siw := openSiw(t)
	e := newEnd(t, siw, 0)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := siw.Connect(ctx, e.qp, l.Addr().String(), []byte("12345678")); err == nil {
		t.Error("siw has connected to nothing")
	}
	check(t, l.Close())
	b := <-got
	bits, p2p := strings.CutSuffix(*request, " peer-to-peer")
	if want := unhex(t, bits); !bytes.Equal(b[16:18], want) || b[17] == 2 && b[20]&0x80 != 0 != p2p {
		t.Errorf("siw sends % x; want %s", b[16:], *request)
	}
	e.close(t)
	check(t, siw.Close())
}
