//go:build linux && cgo && rdma

package interop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// TestSiwNudges: a responder that does not look at what has come with its reply, as siw itself, gets more, until it has sent something.
func TestSiwNudges(t *testing.T) {
	var l net.Listener
	check(t, in(*goNetns, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(*goAddress, "0"))
		return err
	}))
	defer l.Close()
	siw := openSiw(t)
	e := newEnd(t, siw, 1)
	connected := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := siw.Connect(ctx, e.qp, l.Addr().String(), nil)
		connected <- err
	}()
	conn, err := l.Accept()
	check(t, err)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(conn, make([]byte, 24))
	check(t, err)
	_, err = conn.Write(append([]byte("MPA ID Rep Frame"), unhex(t, "1002 0004 0004 0004")...))
	check(t, err)
	check(t, <-connected)
	frame := make([]byte, 20)
	for range 3 {
		_, err := io.ReadFull(conn, frame)
		check(t, err)
		if !bytes.Equal(frame[:4], unhex(t, "000e c140")) {
			t.Fatalf("% x is no WRITE of no bytes", frame)
		}
	}
	_, err = conn.Write(unhex(t, "0016 4143 00000000 00000000 00000001 00000000 00000000 00000000"))
	check(t, err)
	if wc := e.reap(t); wc.Op != verbs.OpRecv || wc.Status != verbs.StatusOK {
		t.Errorf("%+v: %v", wc, e.qp.Err())
	}
	check(t, conn.SetReadDeadline(time.Now().Add(3*time.Second))) // three more of them
	rest, err := io.ReadAll(conn)
	if len(rest) > len(frame) || !errors.Is(err, os.ErrDeadlineExceeded) { // one may have been on its way
		t.Errorf("% x, %v after the responder has sent something", rest, err)
	}
	e.close(t)
	check(t, siw.Close())
}
