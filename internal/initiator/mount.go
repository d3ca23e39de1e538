package initiator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs"
	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/control"
	"github.com/pmemfs/pmemfs/internal/mountinfo"
	"github.com/pmemfs/pmemfs/internal/platform"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// lockTimeout bounds the wait for a daemon of this pool that is on its way out: committing after an unmount, or killed and not
// yet torn down by the kernel.
const lockTimeout = 30 * time.Second

// closeTimeout bounds what is left to do with a target after an unmount.
const closeTimeout = 15 * time.Second

// walkUpTo is the size in bytes of the nodes of a tree that a mount checks, every one of them: they take a few hundredths of a
// second. That is some 45,000 files; with more, a mount relies on the snapshot of the allocator.
const walkUpTo = 16 << 20

// MountConfig is what a mount needs to know.
type MountConfig struct {
	Config     *config.Mount
	Set        *poolset.Set
	Mountpoint string // absolute
	Options    fs.Options
	Log        *logrus.Entry
	Progress   func(text string) // what takes long, for the person who waits
}

// Mounted is a mounted pool. Whoever made it calls Wait.
type Mounted struct {
	MountConfig
	pool    *pool.Pool
	doubts  []string // of the platform file
	eadr    bool     // it declares that the CPU caches are persistent
	id      poolset.Attr
	found   volume.Recovered // in the local pool, before anything was changed
	vol     *volume.Volume
	links   []*link
	commit  *commit.Committer
	fuse    *fs.Mounted
	control *control.Server
	seq     uint64 // jobs executed before the committer took over

	prefaulter *prefaulter // nil if there is none
	growing    sync.Mutex  // held by the one grow under way

	now        func() volume.Time
	generation func() uint64 // a fresh random one
}

// Mount does all the steps of the package documentation. On an error nothing stays mounted, open or locked.
func Mount(ctx context.Context, mc MountConfig) (*Mounted, error) {
	m := &Mounted{MountConfig: mc, now: now, generation: randomGeneration}
	start := m.start
	if mc.Options.ReadOnly {
		start = m.startReadOnly
	}
	if err := start(ctx); err != nil {
		if m.pool != nil {
			m.pool.Distrust(err)
		}
		m.release()
		return nil, err
	}
	return m, nil
}

func (m *Mounted) start(ctx context.Context) error {
	if err := m.openPool(); err != nil {
		return err
	}
	m.hintGrowth()
	if _, err := fs.FreePoint(m.Mountpoint, m.Options.NonEmpty); err != nil {
		return err
	}
	if err := m.connect(ctx); err != nil {
		return err
	}
	if err := m.attach(ctx); err != nil {
		return err
	}
	if err := m.prefault(); err != nil {
		return err
	}
	return m.serve()
}

// attach is steps 3 to 7.
func (m *Mounted) attach(ctx context.Context) error {
	before := m.pool.State()
	term, err := m.takeTerm(0)
	if err != nil {
		return err
	}
	if err := m.recover(term); err != nil {
		return err
	}
	if err := m.claim(ctx, term); err != nil {
		return err
	}
	return m.synchronise(ctx, before)
}

// openPool is step 1.
func (m *Mounted) openPool() error {
	machine, err := platform.Load(m.Config.Platform)
	if err != nil {
		return err
	}
	m.pool, err = pool.Open(m.Set, pool.OpenOptions{
		Role: "mount", Durability: pool.Durability(m.Config.Durability), Wait: lockTimeout, EADR: machine.EADR,
	})
	if err != nil {
		return err
	}
	m.eadr, m.doubts = machine.EADR, machine.Doubts(m.Set.Parts)
	for _, doubt := range m.doubts {
		m.Log.Warn(doubt)
	}
	return m.examine()
}

// examine refuses a pool that must not be mounted as it is, and finds out how far it is.
func (m *Mounted) examine() (err error) {
	p := m.pool
	m.id = p.Header().Attr
	if m.id.Signature != poolset.Signature {
		return fmt.Errorf("%s holds a pool of another program (signature %q): it has no file system to mount", m.Set.File, m.id.Signature[:])
	}
	st := p.State()
	switch {
	case st.Writer != m.id.CopyID:
		return fmt.Errorf("%s is a replica at term %d, written by copy %v: run `pmemfs promote` here before you mount it", m.Set.File, st.Term, st.Writer)
	case st.Flags&poolset.Inconsistent != 0:
		return fmt.Errorf("%s is marked Inconsistent: a copy to it did not finish, a write to it failed, or its memory was lost; "+
			"promote and mount another copy and attach this one as a replica; if there is none, take its bytes as they are with `pmemfs promote --force`", m.Set.File)
	}
	if m.found, err = volume.Probe(p.ReadAt, m.id.PoolUUID, p.Header().PoolSize); err != nil {
		return inParts(m.Set, err)
	}
	for _, flaw := range []error{p.Flaws(), m.found.Slot} {
		if flaw != nil {
			m.Log.WithError(inParts(m.Set, flaw)).Warn("a part of the pool that exists twice is damaged in one place, and the other was used; a crash during a change leaves that too")
		}
	}
	return nil
}

// inParts says which files an error about bytes of the pool is about: its offsets count through all parts.
func inParts(set *poolset.Set, err error) error {
	var paths []string
	for _, p := range set.Parts {
		paths = append(paths, p.Path)
	}
	return fmt.Errorf("pool %s, in %s: %w", set.File, strings.Join(paths, ", "), err)
}

// takeTerm is step 3: a term higher than any that a copy has seen. The local state loses the flags in clear.
func (m *Mounted) takeTerm(clear poolset.Flags) (uint64, error) {
	term := m.pool.State().Term
	for _, l := range m.links {
		term = max(term, l.replica.Peer().Term)
	}
	term++
	err := m.pool.SetState(func(s *poolset.State) {
		s.Term, s.Writer = term, m.id.CopyID
		s.Flags &^= clear
	})
	return term, err
}

// recover is step 4.
func (m *Mounted) recover(term uint64) error {
	vol, found, err := volume.Open(m.pool.Region(), volume.Options{
		PoolUUID: m.id.PoolUUID, Term: term, Now: m.now, NoAtime: m.Options.NoAtime, StrictAtime: m.Options.StrictAtime,
		WalkUpTo: walkUpTo,
	})
	if err != nil {
		return inParts(m.Set, err)
	}
	m.vol = vol
	if found.Misled != nil {
		m.Log.WithError(inParts(m.Set, found.Misled)).Warn("the snapshot of the allocator does not fit the log, so the tree was walked; unmount, run pmemfs fsck, and report this as a bug")
	}
	m.Log.WithFields(logrus.Fields{
		"pool": m.id.PoolUUID, "term": term, "epoch": found.Epoch, "lsn": found.LSN, "replayed": found.Replayed, "orphans": found.Orphans, "snapshot": found.Snapshot,
	}).Info("recovered")
	return nil
}

// serve is step 8.
func (m *Mounted) serve() (err error) {
	targets := make([]commit.Copy, len(m.links))
	for i, l := range m.links {
		targets[i] = l.replica
	}
	m.commit = commit.New(commit.Config{
		Volume: m.vol, Region: m.pool.Region(), Targets: targets, Interval: m.Config.CommitInterval, Seq: m.seq,
		Failed: m.pool.Distrust,
	})
	for i, l := range m.links {
		l.follow(m.commit, i+1)
	}
	return m.show(m.commit, m.answer)
}

// show mounts and opens the control socket.
func (m *Mounted) show(c fs.Committer, answer func(control.Request) control.Reply) (err error) {
	opts := m.Options
	if opts.FSName == "" {
		opts.FSName = m.Config.Path
	}
	m.fuse, err = fs.Mount(fs.Config{Volume: m.vol, Committer: c, Options: opts, Log: m.Log}, m.Mountpoint)
	if err != nil {
		return err
	}
	real, err := mountinfo.Resolve(m.Mountpoint)
	if err != nil {
		return err
	}
	m.control, err = control.Listen(control.SocketPath(real), answer)
	return err
}

// unmountRetry is how often a mount that is in use is tried again.
const unmountRetry = 200 * time.Millisecond

// UnmountOn unmounts at the first signal, or as soon after it as no file is open any more; the second signal detaches the
// mount from open files. It returns when the mount has ended.
func (m *Mounted) UnmountOn(signals <-chan os.Signal) {
	var retry <-chan time.Time
	unmount := m.fuse.Unmount
	for {
		select {
		case <-m.fuse.Done():
			return
		case <-signals:
			if retry != nil {
				unmount = m.fuse.Abort
			}
		case <-retry:
		}
		if err := unmount(); err != nil && retry == nil {
			m.Log.WithError(err).Warn("cannot unmount yet: trying until it is not in use; the next signal detaches the mount from open files")
		}
		retry = time.After(unmountRetry)
	}
}

// Wait returns when the mount has ended and all that can be done for its copies is done. The error says what is not replicated.
func (m *Mounted) Wait() error {
	m.fuse.Serve()
	// umount(8) may have returned already, and the next mount may come at any moment.
	if err := m.pool.Leave(); err != nil {
		m.Log.WithError(err).Warn("the next mount of this pool will not wait for the end of this one")
	}
	if m.Options.ReadOnly {
		m.release()
		m.Log.Info("unmounted, nothing was changed")
		return nil
	}
	err := m.commit.Close()
	if err == nil {
		err = m.markClean()
	}
	m.release()
	if err != nil {
		return fmt.Errorf("unmounted %s, but not everything is on every copy: %w", m.Mountpoint, err)
	}
	m.Log.Info("unmounted, every copy is clean")
	return nil
}

// markClean is steps 2 and 3 of an unmount. Either mark without the other only means a needless copy, so no order of them is
// unsafe.
func (m *Mounted) markClean() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, l := range m.links {
		if err := l.replica.Clean(ctx, wire.FlagClean); err != nil {
			return err
		}
	}
	return m.pool.SetState(func(s *poolset.State) { s.Flags |= poolset.Clean })
}

// release gives back whatever start got hold of, in the opposite order.
func (m *Mounted) release() {
	if m.fuse != nil {
		_ = m.fuse.Abort() // no effect if it has ended already
	}
	if m.control != nil {
		_ = m.control.Close()
	}
	if m.commit != nil {
		_ = m.commit.Close() // no effect if Wait did it already
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, l := range m.links {
		if err := l.replica.Close(ctx); err != nil {
			m.Log.WithError(err).Warn("cannot close the session of a target; it ends when the connection does")
		}
		if l.device == nil {
			continue
		}
		if err := l.device.Close(); err != nil {
			m.Log.WithError(err).Warn("cannot close the RDMA device")
		}
	}
	if m.prefaulter != nil {
		m.prefaulter.close()
	}
	if m.pool != nil {
		if err := m.pool.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			m.Log.WithError(err).Error("cannot close the pool")
		}
	}
}

func now() volume.Time {
	t := time.Now()
	return volume.Time{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}
