package target

import (
	"errors"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/region"
)

// This file holds sessions whose pool the device cannot have. The initiator places bytes in a staging area, and its flush requests say where: the
// handler copies them into the pool before it makes them persistent. Space of the area is the initiator's to use again once a
// request is answered.

// stage registers a staging area in place of the pool. why is what is against the pool.
func (g *grant) stage(dev verbs.Device, c choice, why error) (err error) {
	c.staged = true
	if g.method, g.why, err = c.choose(); err != nil {
		return err
	}
	g.chunks = nil
	if g.staging, err = region.NewBuffer(dev, g.pd, c.Bounce, verbs.RemoteWrite|verbs.RemoteRead); err != nil {
		return refuse(wire.StatusRegister, "%v", err)
	}
	g.log.Warnf("the session goes through bounce buffers of %d MiB: %v", c.Bounce>>20, why)
	return nil
}

func areaOf(mr verbs.MR) wire.Area {
	if mr == nil {
		return wire.Area{}
	}
	return wire.Area{Base: mr.Addr(), RKey: mr.RKey(), Len: uint64(len(mr.Bytes()))}
}

// staged is the size of the staging area in bytes, 0 if there is none.
func (g *grant) staged() uint64 {
	if g.staging == nil {
		return 0
	}
	return uint64(len(g.staging.Bytes()))
}

// checkStage refuses a request that does not fit the session: bytes are staged if and only if there is a staging area.
func (g *grant) checkStage(req *wire.Flush) error {
	if staged := g.staging != nil; (req.Stage != wire.Unstaged) != staged || staged && !req.CheckStage(g.staged()) {
		return errBadStage
	}
	return nil
}

// move copies the bytes of the request's ranges, which have been checked, from the staging area into the pool, or back for a fetch.
func (g *grant) move(req *wire.Flush) error {
	pool, area := g.region.Bytes(), g.staging.Bytes()[req.StageAt:]
	for _, r := range req.Ranges {
		inPool, inArea := pool[r.Off:r.Off+r.Len], area[:r.Len]
		var err error
		if req.Stage == wire.Fetch {
			err = pmem.CopyOut(inArea, inPool)
		} else {
			err = pmem.Copy(inPool, inArea)
		}
		if err != nil {
			return err
		}
		area = area[r.Len:]
	}
	return nil
}

var errBadStage = errors.New("target: flush request outside the staging area, or one that does not fit the session")
