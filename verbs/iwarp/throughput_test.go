package iwarp

import (
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
)

// BenchmarkWrite moves 1 MiB at a time, each proven by an 8-byte Read behind it.
func BenchmarkWrite(b *testing.B) {
	for _, crc := range []bool{false, true} {
		name := "Plain"
		if crc {
			name = "CRC"
		}
		b.Run(name, func(b *testing.B) {
			const size = 1 << 20
			near, far := newPeer(b, Options{CRC: crc}, size), newPeer(b, Options{}, size)
			connect(b, near, far)
			wrs := []verbs.SendWR{
				{Op: verbs.OpWrite, Local: near.sge(0, size), RemoteAddr: far.mr.Addr(), RKey: far.mr.RKey()},
				{Op: verbs.OpRead, Signaled: true, Local: near.sge(0, 8), RemoteAddr: far.mr.Addr(), RKey: far.mr.RKey()},
			}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				check(b, near.qp.PostSend(wrs))
				if wc := near.reap(b); wc.Status != verbs.StatusOK {
					b.Fatal(near.qp.Err())
				}
			}
		})
	}
}
