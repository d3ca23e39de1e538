package crash

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

var rootDirs = [2]volume.Ino{volume.Root, volume.Root + 1}

func fixedTime() volume.Time { return volume.Time{Sec: 99} }

// judge decides whether the bytes of a copy are a right outcome.
type judge struct {
	dirs  [2]volume.Ino
	buf   []byte
	found []volume.Finding
	now   func() volume.Time
}

// anyTerm is higher than the term of any record.
const anyTerm = 1 << 40

var poolUUID = [16]byte{0x70, 0x6d, 0x65, 0x6d, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}

// image recovers the volume in b, which it may change, and tests every invariant of a single copy. flipping: a checkpoint is under way. deep: also recover a second time.
func (j *judge) image(b []byte, l *line, flipping, deep bool) (lsn, clock uint64, err error) {
	r := pmemtest.Plain(b)
	v, rec, err := j.open(r, 0)
	if err != nil {
		return 0, 0, err
	}
	if rec.Slot != nil && !flipping {
		return 0, 0, fmt.Errorf("no checkpoint is under way, and still only one super slot is a state to fall back to: %w", rec.Slot)
	}
	if rec.Misled != nil {
		return 0, 0, fmt.Errorf("the snapshot of the allocator differs from what a walk finds: %w", rec.Misled)
	}
	st, err := j.known(v, rec, l)
	if err != nil {
		return 0, 0, err
	}
	if deep {
		if v, err = j.again(r, rec, st); err != nil {
			return 0, 0, fmt.Errorf("recovering a second time differs from the first, %+v: %w", rec, err)
		}
	}
	return rec.LSN, st.clock, j.reclaim(v, rec, st)
}

// again recovers a second time, by a walk of the tree and not from a snapshot of the allocator, which must find the same.
func (j *judge) again(r pmem.Region, first volume.Recovered, st *state) (*volume.Volume, error) {
	v, rec, err := j.open(r, 1<<30)
	if err != nil {
		return nil, err
	}
	if rec.LSN != first.LSN || rec.Epoch != first.Epoch || rec.Replayed != first.Replayed || rec.Orphans != first.Orphans {
		return nil, fmt.Errorf("found %+v", rec)
	}
	return v, j.matches(v, st)
}

func (j *judge) open(r pmem.Region, walkUpTo uint64) (v *volume.Volume, rec volume.Recovered, err error) {
	v, rec, err = volume.Open(r, volume.Options{PoolUUID: poolUUID, Term: anyTerm, Now: j.now, NoAtime: true, WalkUpTo: walkUpTo})
	if err != nil {
		return nil, rec, fmt.Errorf("the copy does not mount: %w", err)
	}
	return v, rec, j.check(v)
}

// check is fsck: it must find nothing.
func (j *judge) check(v *volume.Volume) error {
	j.found = j.found[:0]
	if err := v.Check(func(f volume.Finding) { j.found = append(j.found, f) }); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if len(j.found) > 0 {
		return fmt.Errorf("check found %v", j.found)
	}
	return nil
}

// known finds the state of the group that was recovered to, and compares.
func (j *judge) known(v *volume.Volume, rec volume.Recovered, l *line) (*state, error) {
	st := l.states[rec.LSN]
	if st == nil {
		return nil, fmt.Errorf("recovered to group %d, which was never closed on this line", rec.LSN)
	}
	err := j.matches(v, st)
	if st.after != nil && j.matches(v, st.after) == nil {
		st, err = st.after, nil
	}
	if err != nil {
		return nil, fmt.Errorf("recovered to group %d (changes up to %d): %w", rec.LSN, st.clock, err)
	}
	return st, j.acknowledged(st.clock, rec.LSN, l)
}

// settled judges an image that was judged before: more may have been acknowledged since.
func (j *judge) settled(s seen, l *line) error {
	if s.inconsistent {
		return nil
	}
	return j.acknowledged(s.clock, s.lsn, l)
}

func (j *judge) acknowledged(clock, lsn uint64, l *line) error {
	if clock < l.acked {
		return fmt.Errorf("recovered to group %d, which has the changes up to %d; those up to %d were acknowledged", lsn, clock, l.acked)
	}
	return nil
}

// matches compares all names and content with a state.
func (j *judge) matches(v *volume.Volume, st *state) error {
	rest := st.entries
	for d, ino := range j.dirs {
		n := 0
		for n < len(rest) && rest[n].path.Dir == uint8(d) {
			n++
		}
		more := 0
		if d == 0 {
			more = 1 + st.more
		}
		if err := j.directory(v, ino, rest[:n], more); err != nil {
			return err
		}
		rest = rest[n:]
	}
	for i := range st.entries {
		if err := j.entry(v, &st.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// directory compares the names of one directory. The root has more: /dir and perhaps ballast.
func (j *judge) directory(v *volume.Volume, dir volume.Ino, want []entry, more int) error {
	subdirs := 0
	for _, e := range want {
		if e.node.dir {
			subdirs++
		}
		a, err := v.Lookup(dir, e.path.name())
		if err != nil || a.Ino != e.node.ino {
			return fmt.Errorf("name %v: found inode %d (%v), expected %d", e.path, a.Ino, err, e.node.ino)
		}
	}
	n := 0
	if err := v.ReadDir(dir, 2, func(volume.DirEnt) bool { n++; return true }); err != nil {
		return err
	}
	expect := len(want) + more
	if more > 0 {
		subdirs++
	}
	if n != expect {
		return fmt.Errorf("directory %d: found %d names, expected %d", dir, n, expect)
	}
	a, err := v.GetAttr(dir)
	if err != nil || int(a.Nlink) != 2+subdirs {
		return fmt.Errorf("directory %d: found %d links (%v), expected %d", dir, a.Nlink, err, 2+subdirs)
	}
	return nil
}

func (j *judge) entry(v *volume.Volume, e *entry) error {
	a, err := v.GetAttr(e.node.ino)
	if err != nil {
		return err
	}
	links := e.links
	if e.node.dir {
		links = 2
	}
	if a.Mode != e.mode || int(a.Nlink) != links {
		return fmt.Errorf("%v: found mode %o and %d links, expected %o and %d", e.path, a.Mode, a.Nlink, e.mode, links)
	}
	if err := j.xattr(v, e); err != nil || e.node.dir {
		return err
	}
	got, err := j.content(v, e.node.ino, a.Size)
	if err != nil {
		return err
	}
	return explains(e, got)
}

func (j *judge) content(v *volume.Volume, ino volume.Ino, size uint64) ([]byte, error) {
	if size > 1<<24 {
		return nil, fmt.Errorf("inode %d has a size of %d", ino, size)
	}
	if uint64(len(j.buf)) < size {
		j.buf = make([]byte, size)
	}
	n, err := v.Read(ino, 0, j.buf[:size])
	if err != nil || uint64(n) != size {
		return nil, fmt.Errorf("inode %d: read %d of %d bytes: %w", ino, n, size, err)
	}
	return j.buf[:n], nil
}

// explains tells whether the bytes of a file are those of the version that its group has, or were written there in place later.
func explains(e *entry, got []byte) error {
	want := e.content.data
	if len(got) != len(want) {
		return fmt.Errorf("%v: found %d bytes, expected %d", e.path, len(got), len(want))
	}
	if bytes.Equal(got, want) {
		return nil
	}
	for i, c := range got {
		if c != want[i] && !e.node.wrote(e.content, i, c) {
			return fmt.Errorf("%v: byte %d of %d is %#x: expected %#x, or what was written there later", e.path, i, len(got), c, want[i])
		}
	}
	return nil
}

const xattrName = "user.x"

func (j *judge) xattr(v *volume.Volume, e *entry) error {
	if len(j.buf) < 64<<10 {
		j.buf = make([]byte, 64<<10)
	}
	n, err := v.GetXattr(e.node.ino, xattrName, j.buf)
	switch {
	case errors.Is(err, syscall.ENODATA) && e.xattr == nil:
		return nil
	case err != nil || e.xattr == nil || !bytes.Equal(j.buf[:n], e.xattr):
		return fmt.Errorf("%v: found an extended attribute of %d bytes (%v), expected %d other bytes", e.path, n, err, len(e.xattr))
	}
	return nil
}

// reclaim frees what recovery found without a name, and tests that then nothing is left of it.
func (j *judge) reclaim(v *volume.Volume, rec volume.Recovered, st *state) error {
	if rec.Orphans > 0 {
		for more := true; more; {
			var err error
			if more, err = v.Reclaim(); err != nil {
				if errors.Is(err, volume.ErrShort) {
					return nil // needs a checkpoint, which an image has no committer for
				}
				return fmt.Errorf("reclaim after recovery: %w", err)
			}
		}
		if err := j.check(v); err != nil {
			return fmt.Errorf("after reclaim: %w", err)
		}
	}
	if n := v.StatFS().Inodes; n != st.inodes {
		return fmt.Errorf("found %d inodes, expected %d: something without a name was not removed", n, st.inodes)
	}
	return nil
}
