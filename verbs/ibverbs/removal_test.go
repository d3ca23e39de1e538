//go:build linux && cgo && rdma

package ibverbs

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// TestRemoval pulls the device out under a stream of Writes in both directions, and plugs it in again. It is the last test, as the name of its
// file sees to.
func TestRemoval(t *testing.T) {
	before := descriptors(t)
	a, b := pair(t, 1<<20)
	l, err := b.dev.Listen(listenAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	var wg sync.WaitGroup
	for _, d := range [][2]*end{{a, b}, {b, a}} {
		wg.Go(func() {
			for n := 0; ; n++ {
				if err := d[0].qp.PostSend([]verbs.SendWR{d[0].write(d[1], 1<<16)}); err != nil {
					t.Error(err)
					return
				}
				if wc := d[0].reap(t); wc.Status != verbs.StatusOK {
					t.Logf("after %d Writes: %v: %v", n, wc.Status, d[0].qp.Err())
					return
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	removed := make(chan struct{})
	go func() {
		command(t, "rdma", "link", "delete", env(t, "PMEMFS_RDMA_DEVICE"))
		close(removed)
	}()
	wg.Wait()
	if err := <-accepted; !errors.Is(err, verbs.ErrDeviceGone) {
		t.Errorf("Accept of a listener whose device is gone: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.dev.CreateCQ(4); !errors.Is(err, verbs.ErrDeviceGone) {
		t.Errorf("a completion queue on a device that is gone: %v", err)
	}
	a.close(t)
	b.close(t)
	if isSIW(t) {
		return // its removal waits for the end of the process: librdmacm has the device open
	}
	<-removed
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, %d before the device was", after, before)
	}
	plug(t)
	c, d := pair(t, 64)
	works(t, c, d)
	c.close(t)
	d.close(t)
}

// descriptors counts those of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
