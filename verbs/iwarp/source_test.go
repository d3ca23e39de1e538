package iwarp

import (
	"bytes"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
)

// With CRC a frame is sent from a copy, taken when its checksum is: a source that is stored to before the socket has the bytes harms nobody. Without, a
// long payload is sent from where it lies.
func TestSourceChangesBehindTheChecksum(t *testing.T) {
	const n = 50_000
	for _, crc := range []bool{true, false} {
		a, b := newPeer(t, Options{CRC: crc}, n), newPeer(t, Options{}, n)
		connect(t, a, b)
		for i := range a.mem {
			a.mem[i] = 1
		}
		q := a.qp.(*qp)
		h := header{tagged: true, op: opWrite, stag: b.mr.RKey(), to: b.mr.Addr()}
		q.tx.mu.Lock()
		collected := q.tx.message(&h, a.mr.(*mr), 0, n, noOwner)
		a.mem[n/2] = 2
		sent := q.tx.flush()
		q.tx.mu.Unlock()
		if !collected || !sent {
			t.Fatalf("crc %v: %v", crc, a.qp.Err())
		}
		check(t, a.qp.PostSend([]verbs.SendWR{{ID: 1, Op: verbs.OpRead, Signaled: true, Local: a.sge(0, n), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}}))
		if wc := a.reap(t); wc.Status != verbs.StatusOK {
			t.Fatalf("crc %v: %+v, %v", crc, wc, a.qp.Err())
		}
		want := bytes.Repeat([]byte{1}, n)
		if !crc {
			want[n/2] = 2
		}
		if !bytes.Equal(a.mem, want) {
			t.Errorf("crc %v: byte %d of the peer is %d", crc, n/2, a.mem[n/2])
		}
	}
}
