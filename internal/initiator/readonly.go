package initiator

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/control"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// startReadOnly mounts with ro: it shows the state that the local copy would recover to, and changes no byte of any copy. So it
// takes no term, claims no target and asks none, and works for a replica that nobody promoted, and for a primary whose targets are
// away. The log is replayed in memory.
func (m *Mounted) startReadOnly(context.Context) (err error) {
	if m.pool, err = OpenPrivate(m.Set, "mount", m.Options.Inconsistent); err != nil {
		return err
	}
	m.id = m.pool.Header().Attr
	if _, err := fs.FreePoint(m.Mountpoint, m.Options.NonEmpty); err != nil {
		return err
	}
	if m.vol, m.found, err = volume.OpenReadOnly(m.pool.Region(), m.id.PoolUUID, nil); err != nil {
		return fmt.Errorf("%s: %w; see pmemfs fsck, or take what is left with pmemfs export --salvage", m.Set.File, err)
	}
	st := m.pool.State()
	m.Log.WithFields(logrus.Fields{
		"pool": m.id.PoolUUID, "copy": m.id.CopyID, "role": role(m.id, st), "group": m.found.LSN, "term": m.found.Term, "replayed": m.found.Replayed,
	}).Info("mounted read-only: this group is shown, and no byte of any copy changes")
	if st.Flags&poolset.Inconsistent != 0 {
		m.Log.Warn("the copy is marked Inconsistent: it may hold bytes of different moments")
	}
	return m.show(still{}, m.answerReadOnly)
}

// still commits nothing, since nothing changes.
type still struct{}

func (still) Fsync(volume.Ino, bool) error { return nil }
func (still) SyncAll() error               { return nil }
func (still) Checkpoint() error            { return volume.ErrReadOnly }
func (still) Err() error                   { return nil }

// answerReadOnly serves the control socket of a mount with ro. There is nothing to sync.
func (m *Mounted) answerReadOnly(req control.Request) control.Reply {
	if req.Op != control.OpStatus && req.Op != control.OpSync {
		return control.Reply{Error: fmt.Sprintf("%q is not possible on a mount with ro: unmount, and mount without it", req.Op)}
	}
	st, space := m.pool.State(), m.vol.StatFS()
	s := m.serving(control.ReadOnly)
	s.SealedLSN = m.found.LSN
	s.BytesTotal, s.BytesFree, s.Inodes = space.Blocks*4096, space.Free*4096, space.Inodes
	s.Requests = m.fuse.Counts().ByName()
	s.Copies = append(s.Copies, offlineCopy(m.Set, pool.Info{Header: m.pool.Header(), State: st}))
	if err := m.vol.Fault(); err != nil {
		s.Verdict, s.Error = control.Failed, err.Error()
	}
	return control.Reply{Status: s}
}
