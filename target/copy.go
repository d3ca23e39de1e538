package target

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/platform"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// role is what the lock of a served pool says about this process.
const role = "target"

// localCopy is an open pool in the terms of the wire.
type localCopy struct {
	pool   *pool.Pool
	doubts []string // of the platform file
}

// openCopy opens the pool whose pool set file is path. The copy promises as much as its parts can keep.
func openCopy(path string, machine *platform.Platform, least config.Durability, wait time.Duration) (*localCopy, Replica, error) {
	set, err := readSet(path)
	if err != nil {
		return nil, Replica{}, err
	}
	if wait > 0 {
		if err := waitDaemon(set, wait); err != nil {
			return nil, Replica{}, err
		}
	}
	opt := pool.OpenOptions{Role: role, Wait: wait, AnySignature: true, EADR: machine.EADR}
	p, err := withBestClass(least, func(d pool.Durability) (*pool.Pool, error) {
		opt.Durability = d
		return pool.Open(set, opt)
	})
	if err != nil {
		return nil, Replica{}, err
	}
	c := &localCopy{p, machine.Doubts(set.Parts)}
	return c, c.replica(), nil
}

// waitDaemon waits for the end of a daemon that holds the pool. A pool that is mounted is not waited for.
func waitDaemon(set *poolset.Set, d time.Duration) error {
	info, err := pool.Inspect(set)
	if err != nil || info.Holder == nil || info.Holder.Role != role {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return pool.WaitGone(ctx, set)
}

// withBestClass opens a pool for media, or for memory where its parts cannot do better and the configuration allows it.
func withBestClass(least config.Durability, open func(pool.Durability) (*pool.Pool, error)) (*pool.Pool, error) {
	p, err := open(pool.Media)
	if !errors.Is(err, pool.ErrDurability) {
		return p, err
	}
	if least == config.Media {
		return nil, refuse(wire.StatusDurability, `%v; target.toml asks for durability = "media"`, err)
	}
	return open(pool.Memory)
}

// inspectCopy reads the state of a pool that this process may not have.
func inspectCopy(path string) (Replica, error) {
	set, err := readSet(path)
	if err != nil {
		return Replica{}, err
	}
	info, err := pool.Inspect(set)
	if err != nil {
		return Replica{}, err
	}
	return replicaOf(&info.Header, &info.State), nil
}

// createCopy makes the pool whose pool set file is path, and closes it. It has no generation, since no writer has filled it.
func createCopy(path string, least config.Durability, a Create) (Replica, error) {
	set, err := readSet(path)
	if err != nil {
		return Replica{}, err
	}
	have, err := pool.SizeOf(set)
	if err != nil {
		return Replica{}, refuse(wire.StatusPoolSet, "%v", err)
	}
	if have < a.Size {
		return Replica{}, refuse(wire.StatusTooSmall, "pool set %s has %d bytes, %d are wanted", path, have, a.Size)
	}
	p, err := withBestClass(least, func(d pool.Durability) (*pool.Pool, error) {
		return pool.Create(set, poolset.Attr(a.Attr), pool.CreateOptions{Durability: d, Role: role})
	})
	if err != nil {
		return Replica{}, err
	}
	c := localCopy{pool: p}
	err = p.SetState(func(s *poolset.State) { s.Gen = 0 })
	r := c.replica()
	return r, errors.Join(err, c.close())
}

// removeCopy deletes the parts of a pool.
func removeCopy(path string) error {
	set, err := readSet(path)
	if err != nil {
		return err
	}
	return pool.Remove(set)
}

// growCopy makes an open copy as large as its pool set file says, which must be size bytes at least. A copy that has them stays as it is.
func growCopy(path string, c *localCopy, size uint64) error {
	if c.pool.Header().PoolSize >= size {
		return nil
	}
	set, err := readSet(path)
	if err != nil {
		return err
	}
	have, err := c.pool.SizeWith(set)
	switch {
	case errors.Is(err, pool.ErrGrowth):
		return refuse(wire.StatusPoolSet, "%v", err)
	case err != nil:
		return err
	case have < size:
		return refuse(wire.StatusTooSmall, "the pool set file %s names %d bytes, %d are wanted", path, have, size)
	}
	err = c.pool.Grow(set)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) { // a new part, not the pool
		return refuse(wire.StatusPoolSet, "%v", err)
	}
	return err
}

func (c *localCopy) region() pmem.Region { return c.pool.Region() }
func (c *localCopy) close() error        { return c.pool.Close() }

func (c *localCopy) replica() Replica {
	h, s := c.pool.Header(), c.pool.State()
	return replicaOf(&h, &s)
}

// persist makes r the state of the copy. What the wire does not carry stays.
func (c *localCopy) persist(r *Replica) error {
	if len(r.Peers) > len(poolset.State{}.Peers) {
		return refuse(wire.StatusBadRequest, "%d peers, at most %d can be noted", len(r.Peers), len(poolset.State{}.Peers))
	}
	return c.pool.SetState(func(s *poolset.State) {
		s.Term, s.Writer, s.Gen, s.History = r.Term, r.Writer, r.Gen, r.History
		s.Flags = poolset.Flags(r.Flags)
		s.SyncGen, s.SyncID = r.SyncGen, r.SyncID
		clear(s.Peers[:])
		copy(s.Peers[:], r.Peers)
	})
}

func (c *localCopy) setAttr(a wire.Attr) error { return c.pool.SetAttr(poolset.Attr(a)) }

func replicaOf(h *poolset.Header, s *poolset.State) Replica {
	r := Replica{
		State: wire.State{
			Attr: wire.Attr(h.Attr), PoolSize: h.PoolSize, Term: s.Term, Writer: s.Writer, Gen: s.Gen, History: s.History,
			Flags: uint32(s.Flags), Durability: wire.DurabilityMedia,
		},
		SyncGen: s.SyncGen, SyncID: s.SyncID,
	}
	if s.Flags&poolset.Memory != 0 {
		r.Durability = wire.DurabilityMemory
	}
	r.Peers = slices.DeleteFunc(slices.Clone(s.Peers[:]), poolset.UUID.IsZero)
	return r
}
