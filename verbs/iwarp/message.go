package iwarp

import "github.com/pmemfs/pmemfs/verbs"

// What the frames of each operation must be like, where their payload goes, and what its arrival means.

// admit checks the header of the current frame and says by dst where its payload goes.
func (x *rx) admit() *failure {
	h := &x.head
	if !h.tagged && h.msn != x.msn[h.queue] {
		return refuse(errMSN)
	}
	x.recv, x.read = nil, nil
	n := uint64(x.payload)
	switch h.op {
	case opWrite:
		return x.admitWrite(h, n)
	case opReadResp:
		return x.admitResponse(h, n)
	case opSend, opSendSE:
		return x.admitSend(h, n)
	case opReadReq:
		if n != readReqSize || h.mo != 0 || !h.last {
			return refuse(errStream)
		}
		return nil
	case opTerminate:
		if n > termMax {
			return refuse(errLength)
		}
		return nil
	}
	return refuse(errInvalidate) // Send with Invalidate
}

// admitWrite: a frame without payload touches nothing, so its address need not be valid.
func (x *rx) admitWrite(h *header, n uint64) *failure {
	if n == 0 {
		return nil
	}
	m := x.q.pd.dev.lookup(h.stag)
	off, bad := m.reach(x.q.pd, verbs.RemoteWrite, h.to, n, writeErrors)
	if bad != nil {
		return refuse(bad)
	}
	x.aim(m, off, n)
	return nil
}

// admitResponse: a frame of the response to the oldest Read.
func (x *rx) admitResponse(h *header, n uint64) *failure {
	e := x.q.oldestRead()
	if e == nil {
		return refuse(errOpcode)
	}
	want := e.wr.Local.Len - e.got
	if n > want || h.last != (n == want) {
		return refuse(errBounds)
	}
	if n > 0 {
		if stag, to := e.sink(); h.stag != stag || h.to != to+e.got {
			return refuse(errSTag)
		}
		x.aim(e.mr, e.wr.Local.Off+e.got, n)
	}
	x.read = e
	return nil
}

// admitSend: a frame of a Send goes to the oldest receive.
func (x *rx) admitSend(h *header, n uint64) *failure {
	e := x.q.oldestRecv()
	switch {
	case e == nil:
		return refuse(errNoReceive)
	case uint64(h.mo) != x.sendDone:
		return refuse(errMO)
	case n > e.wr.Local.Len-x.sendDone:
		return &failure{status: verbs.StatusLength, err: errTooLong, victim: victimRecv, term: errTooLong}
	}
	if n > 0 {
		x.aim(e.mr, e.wr.Local.Off+x.sendDone, n)
	}
	x.recv = e
	return nil
}

// aim makes n bytes at off of m the place of the payload.
func (x *rx) aim(m *mr, off, n uint64) {
	x.into, x.dst = m, m.mem[off:off+n]
}

// placed is called when the payload of a Write, Read response or Send is in its place.
func (x *rx) placed() {
	n := uint64(x.payload)
	switch {
	case x.read != nil:
		x.read.got += n
		if x.head.last {
			x.q.readDone(x.read)
		}
	case x.recv != nil:
		x.sendDone += n
		if x.head.last {
			x.q.recvDone(x.recv, uint32(x.sendDone))
			x.sendDone = 0
			x.msn[queueSend]++
		}
	}
}

// control takes the payload of a Read Request or Terminate.
func (x *rx) control(b []byte) *failure {
	if x.head.op == opTerminate {
		e := parseTerminate(b)
		return &failure{status: e.status(), err: e}
	}
	x.req = b
	r := inboundRead{req: parseReadReq(b)}
	if r.req.size > 0 {
		r.mr = x.q.pd.dev.lookup(r.req.srcSTag)
		off, bad := r.mr.reach(x.q.pd, verbs.RemoteRead, r.req.srcTO, uint64(r.req.size), readErrors)
		if bad != nil {
			return refuse(bad)
		}
		r.off = off
	}
	if !x.q.acceptRead(&r) {
		return refuse(errStream)
	}
	x.msn[queueRead]++
	return nil
}
