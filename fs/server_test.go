package fs

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// countingCommitter promises nothing and counts.
type countingCommitter struct {
	fsyncs, checkpoints int
	checkpointErr       error
}

func (c *countingCommitter) Fsync(volume.Ino, bool) error { c.fsyncs++; return nil }
func (c *countingCommitter) SyncAll() error               { return nil }
func (c *countingCommitter) Err() error                   { return nil }
func (c *countingCommitter) Checkpoint() error            { c.checkpoints++; return c.checkpointErr }

func quietServer(c Committer, v *volume.Volume) (*Server, *logLines) {
	lines := &logLines{}
	log := logrus.New()
	log.SetOutput(lines)
	return NewServer(Config{Volume: v, Committer: c, Log: log}), lines
}

type logLines struct{ text strings.Builder }

func (l *logLines) Write(b []byte) (int, error) { return l.text.Write(b) }

func TestChange_RunsAtMostTwoCheckpoints(t *testing.T) {
	down := errors.New("down")
	for _, tc := range []struct {
		short         int // times that the volume is short
		checkpointErr error
		want          error
		checkpoints   int
	}{
		{0, nil, nil, 0},
		{1, nil, nil, 1},
		{2, nil, nil, 2},
		{3, nil, volume.ErrShort, 2},
		{1, down, down, 1},
	} {
		c := &countingCommitter{checkpointErr: tc.checkpointErr}
		s, _ := quietServer(c, nil)
		left := tc.short
		err := s.change(func() error {
			if left--; left >= 0 {
				return fmt.Errorf("allocate: %w", volume.ErrShort)
			}
			return nil
		})
		if !errors.Is(err, tc.want) || c.checkpoints != tc.checkpoints {
			t.Errorf("short %d times: %v after %d checkpoints, want %v after %d", tc.short, err, c.checkpoints, tc.want, tc.checkpoints)
		}
	}
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		err    error
		want   fuse.Status
		logged bool
	}{
		{nil, fuse.OK, false},
		{syscall.ENOENT, fuse.ENOENT, false},
		{syscall.EFBIG, fuse.Status(syscall.EFBIG), false},
		{fmt.Errorf("x: %w", volume.ErrShort), fuse.Status(syscall.ENOSPC), false},
		{fmt.Errorf("%w: %w", volume.ErrStopped, syscall.EPIPE), fuse.EROFS, false},
		{&pmem.FaultError{}, fuse.EIO, true},
		{fmt.Errorf("read: %w", &pmem.SyncError{Err: syscall.ENOSPC}), fuse.EIO, true},
		{fmt.Errorf("node: %w", volume.ErrCorrupt), fuse.EIO, true},
		{fmt.Errorf("some layer: %w", syscall.ENOENT), fuse.EIO, true},
		{syscall.EINTR, fuse.EIO, true},
		{io.ErrUnexpectedEOF, fuse.EIO, true},
	} {
		s, lines := quietServer(&countingCommitter{}, nil)
		if got := s.status(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
		if got := lines.text.Len() > 0; got != tc.logged {
			t.Errorf("%v: logged %q", tc.err, lines.text.String())
		}
	}
}

func TestLogIsLimited(t *testing.T) {
	s, lines := quietServer(&countingCommitter{}, nil)
	for range 1000 {
		s.status(io.ErrUnexpectedEOF)
		s.durability(io.ErrUnexpectedEOF)
	}
	if n := strings.Count(lines.text.String(), "\n"); n != 1 {
		t.Errorf("%d lines for 2000 errors:\n%s", n, lines.text.String())
	}
}

// newFile returns a server on a fresh volume, and a file in it.
func newFile(t testing.TB) (*Server, *countingCommitter, volume.Ino) {
	t.Helper()
	vol, _, err := newVolume(testPool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &countingCommitter{}
	s, _ := quietServer(c, vol)
	var out fuse.CreateOut
	in := fuse.CreateIn{InHeader: fuse.InHeader{NodeId: volume.Root, Opcode: uint32(OpCreate)}, Mode: 0644}
	if st := s.Create(nil, &in, "file", &out); !st.Ok() {
		t.Fatal(st)
	}
	return s, c, out.NodeId
}

func TestHotPathsAllocateNothing(t *testing.T) {
	s, _, ino := newFile(t)
	data := make([]byte, 4096)
	write := fuse.WriteIn{InHeader: fuse.InHeader{NodeId: ino, Opcode: uint32(OpWrite)}, WriteFlags: fuse.WRITE_KILL_SUIDGID}
	fsync := fuse.FsyncIn{InHeader: fuse.InHeader{NodeId: ino, Opcode: uint32(OpFsync)}}
	getattr := fuse.GetAttrIn{InHeader: fuse.InHeader{NodeId: ino, Opcode: uint32(OpGetAttr)}}
	flush := fuse.FlushIn{InHeader: fuse.InHeader{NodeId: ino, Opcode: uint32(OpFlush)}}
	dsync := write
	dsync.Fh, dsync.Flags = handleDirect, syscall.O_DSYNC
	var attr fuse.AttrOut
	for name, f := range map[string]func() fuse.Status{
		"write":         func() fuse.Status { _, st := s.Write(nil, &write, data); return st },
		"O_DSYNC write": func() fuse.Status { _, st := s.Write(nil, &dsync, data); return st },
		"fsync":         func() fuse.Status { return s.Fsync(nil, &fsync) },
		"getattr":       func() fuse.Status { return s.GetAttr(nil, &getattr, &attr) },
		"flush":         func() fuse.Status { return s.Flush(nil, &flush) },
		"counts":        func() fuse.Status { _ = s.Counts(); return fuse.OK },
	} {
		if st := f(); !st.Ok() {
			t.Errorf("%s: %v", name, st)
		}
		if n := testing.AllocsPerRun(200, func() { f() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Only a handle without a following FSYNC drains in WRITE.
func TestWrite_DrainsOnlyDirectHandles(t *testing.T) {
	s, c, ino := newFile(t)
	for _, tc := range []struct {
		fh    uint64
		flags uint32
		want  int
	}{
		{handleCached, syscall.O_WRONLY, 0},
		{handleCached, syscall.O_WRONLY | syscall.O_DSYNC, 0},
		{handleDirect, syscall.O_WRONLY, 0},
		{handleDirect, syscall.O_WRONLY | syscall.O_DSYNC, 1},
	} {
		c.fsyncs = 0
		in := fuse.WriteIn{InHeader: fuse.InHeader{NodeId: ino}, Fh: tc.fh, Flags: tc.flags}
		if n, st := s.Write(nil, &in, []byte("x")); n != 1 || !st.Ok() {
			t.Fatal(n, st)
		}
		if c.fsyncs != tc.want {
			t.Errorf("handle %d, flags %#x: %d drains, want %d", tc.fh, tc.flags, c.fsyncs, tc.want)
		}
	}
}

// The kernel looks up "." of an inode of any type for open_by_handle_at.
func TestLookup_Dot(t *testing.T) {
	s, _, ino := newFile(t)
	var out fuse.EntryOut
	for _, node := range []volume.Ino{ino, volume.Root} {
		if st := s.Lookup(nil, &fuse.InHeader{NodeId: node}, ".", &out); !st.Ok() || out.NodeId != node || out.Generation != generation {
			t.Errorf("node %d: %v, node %d, generation %d", node, st, out.NodeId, out.Generation)
		}
	}
	if st := s.Lookup(nil, &fuse.InHeader{NodeId: 1 << 40}, ".", &out); st.Ok() {
		t.Error("an inode that does not exist was found")
	}
}

// Each reply that names an inode is one reference; an inode without names lives until the last one is given back.
func TestReferences(t *testing.T) {
	s, _, ino := newFile(t) // CREATE: the first
	root := fuse.InHeader{NodeId: volume.Root}
	var out fuse.EntryOut
	list := fuse.NewDirEntryList(make([]byte, 4096), 0)
	for what, st := range map[string]fuse.Status{
		"lookup":      s.Lookup(nil, &root, "file", &out),
		"link":        s.Link(nil, &fuse.LinkIn{InHeader: root, Oldnodeid: ino}, "second", &out),
		"readdirplus": s.ReadDirPlus(nil, &fuse.ReadIn{InHeader: root}, list), // both names
		"unlink":      s.Unlink(nil, &root, "file"),
		"unlink too":  s.Unlink(nil, &root, "second"),
	} {
		if !st.Ok() {
			t.Fatalf("%s: %v", what, st)
		}
	}
	alive := func() bool {
		for more := true; more; {
			var err error
			if more, err = s.vol.Reclaim(); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.vol.GetAttr(ino)
		return err == nil
	}
	for left := 5; left > 0; left-- {
		if !alive() {
			t.Fatalf("the inode is gone with %d references left", left)
		}
		s.Forget(ino, 1)
	}
	if alive() {
		t.Error("the inode outlives its last reference")
	}
}

func TestCounts(t *testing.T) {
	s, _, ino := newFile(t)
	before := s.Counts()
	var attr fuse.AttrOut
	for range 3 {
		s.GetAttr(nil, &fuse.GetAttrIn{InHeader: fuse.InHeader{NodeId: ino, Opcode: uint32(OpGetAttr)}}, &attr)
	}
	after := s.Counts()
	if n := after[OpGetAttr] - before[OpGetAttr]; n != 3 {
		t.Errorf("%d requests counted, want 3", n)
	}
}
