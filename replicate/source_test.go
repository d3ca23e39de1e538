package replicate

import (
	"math/rand/v2"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// handler is a target's flush handler that takes its time, with as many receives as the lane has credits.
type handler struct {
	t             *testing.T
	cq            verbs.CQ
	qp            verbs.QP
	recvs, sends  verbs.MR
	taken         uint64
	msg           wire.Flush
	wcs           [1]verbs.WC
	answers, seqs uint64
}

const handlerCredits = 3

// newHandler is one that qp is linked to.
func newHandler(t *testing.T, f *verbstest.Fabric, dev verbs.Device, pd verbs.PD, qp verbs.QP) *handler {
	h := &handler{t: t}
	var err error
	h.cq, err = dev.CreateCQ(256)
	must(t, err)
	h.recvs, err = pd.RegisterMR(make([]byte, handlerCredits*wire.MaxFlush), verbs.LocalWrite)
	must(t, err)
	h.sends, err = pd.RegisterMR(make([]byte, 1000*wire.AnswerSize), verbs.LocalWrite)
	must(t, err)
	h.qp, err = pd.CreateQP(verbs.QPAttr{SendCQ: h.cq, RecvCQ: h.cq, SendDepth: 128, RecvDepth: 128})
	must(t, err)
	for i := range uint64(handlerCredits) {
		h.recv(i)
	}
	must(t, f.Link(qp, h.qp))
	return h
}

func (h *handler) recv(slot uint64) {
	must(h.t, h.qp.PostRecv([]verbs.RecvWR{{ID: slot, Local: verbs.SGE{MR: h.recvs, Off: slot * wire.MaxFlush, Len: wire.MaxFlush}}}))
}

// poll takes one request, which must be the next one, whole, and answers it if that is wanted.
func (h *handler) poll() {
	n, err := h.cq.Poll(h.wcs[:])
	must(h.t, err)
	wc := &h.wcs[0]
	if n == 0 || wc.Op == verbs.OpSend {
		return
	}
	if wc.Status != verbs.StatusOK {
		h.t.Fatalf("after %d requests: %v: %v", h.taken, wc.Status, h.qp.Err())
	}
	must(h.t, h.msg.Decode(h.recvs.Bytes()[wc.ID*wire.MaxFlush:][:wc.Len]))
	h.seqs++
	if h.msg.Seq != h.seqs || len(h.msg.Ranges) != 1 || h.msg.Ranges[0].Off != 16384+h.seqs*64 || h.msg.Seal.Val != h.seqs {
		h.t.Fatalf("drain %d arrived as %+v", h.seqs, h.msg)
	}
	h.taken++
	h.recv(wc.ID)
	if !h.msg.Answer {
		return
	}
	off := h.answers * wire.AnswerSize
	h.answers++
	a := wire.FlushAnswer{Status: wire.FlushOK, Seq: h.msg.Seq, Taken: h.taken}
	a.Encode(h.sends.Bytes()[off:])
	must(h.t, h.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: h.sends, Off: off, Len: wire.AnswerSize}}}))
}

// Over a transport that completes a Send long before it reads the source, each flush request arrives as it was built, and none without a
// receive: buffers are the ring of the credits, and answers alone give credits back.
func TestGPSPM_BuffersOutliveCompletions(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := verbstest.NewFabric(verbstest.Stepped)
	f.Early()
	da, db := f.Device("a"), f.Device("b")
	pd, err := db.AllocPD()
	must(t, err)
	far, err := pd.RegisterMR(make([]byte, testSize), verbs.RemoteWrite)
	must(t, err)
	fab, err := newFabric(da, ordinary(make([]byte, testSize)), 0, silent())
	must(t, err)
	r := wire.Region{PoolSize: testSize, ChunkSize: testSize, Chunks: []wire.Chunk{{Base: far.Addr() + wire.FirstOffset, RKey: far.RKey()}}}
	l, err := newLane(fab, &wire.Grant{Session: 1, Region: r, Credits: handlerCredits, Method: wire.GPSPM}, testSize, 0, 1)
	must(t, err)
	h := newHandler(t, f, db, pd, l.qp)
	const drains = 300
	started, ended := uint64(0), uint64(0)
	for turns := 0; ended < drains; turns++ {
		switch rng.IntN(4) {
		case 0:
			if started < drains && l.n < MaxInFlight {
				started++
				must(t, l.start(started, []pmem.Range{{Off: 16384 + started*64, Len: 8}}, pmem.Seal{Off: testSeal, Val: started}, inUnits))
			}
		case 1:
			f.Step()
		case 2:
			h.poll()
		case 3:
			out, err := l.reap(nil)
			must(t, err)
			for _, o := range out {
				if o.kind == outDrained {
					ended++
					if o.seq != ended || o.status != wire.FlushOK {
						t.Fatalf("drain %d ended as %+v", ended, o)
					}
				}
			}
		}
		if turns > 1_000_000 {
			t.Fatalf("%d drains started, %d ended", started, ended)
		}
	}
	l.close()
}
