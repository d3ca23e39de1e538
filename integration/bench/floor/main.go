// Floor is a FUSE file system in memory that does as little as one can: a flat directory, write copies into a mapping, fsync
// does nothing. What it needs per operation is what FUSE alone costs here; no file system on FUSE can be faster.
//
// usage: floor MOUNTPOINT
package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fileSize is the room that each file has in the mapping; only touched pages cost memory.
const fileSize = 1 << 30

type file struct {
	name string // empty: unlinked
	size uint64
	data []byte
}

// floor keeps files by node id; ids count from 2, the root is 1.
type floor struct {
	fuse.RawFileSystem
	mu    sync.RWMutex // protects all below
	files map[uint64]*file
	names map[string]uint64
	next  uint64
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: floor MOUNTPOINT")
		os.Exit(64)
	}
	f := &floor{RawFileSystem: fuse.NewDefaultRawFileSystem(), files: map[uint64]*file{}, names: map[string]uint64{}, next: 1}
	srv, err := fuse.NewServer(f, os.Args[1], &fuse.MountOptions{
		Name: "floor", FsName: "floor", AllowOther: true, DirectMountStrict: true, MaxWrite: 1 << 20, MaxBackground: 64,
		ExplicitDataCacheControl: true, ExtraCapabilities: fuse.CAP_HANDLE_KILLPRIV_V2, DisableXAttrs: true, DisableReadDirPlus: true,
		Options: []string{"default_permissions"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGTERM)
	go func() { <-sig; _ = srv.Unmount() }()
	srv.Serve()
}

func (f *floor) attr(id uint64, x *file, a *fuse.Attr) {
	a.Ino, a.Nlink, a.Blksize = id, 1, 4096
	if x == nil {
		a.Mode = syscall.S_IFDIR | 0o755
		return
	}
	a.Mode, a.Size, a.Blocks = syscall.S_IFREG|0o644, x.size, (x.size+511)/512
}

func (f *floor) entry(id uint64, x *file, out *fuse.EntryOut) {
	out.NodeId, out.Generation, out.EntryValid, out.AttrValid = id, 1, 3600, 3600
	f.attr(id, x, &out.Attr)
}

func (f *floor) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	f.mu.RLock()
	defer f.mu.RUnlock()
	id, ok := f.names[name]
	if !ok {
		return fuse.ENOENT
	}
	f.entry(id, f.files[id], out)
	return fuse.OK
}

func (f *floor) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.mu.RLock()
	defer f.mu.RUnlock()
	out.AttrValid = 3600
	f.attr(in.NodeId, f.files[in.NodeId], &out.Attr)
	return fuse.OK
}

func (f *floor) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.files[in.NodeId]
	if size, ok := in.GetSize(); ok && x != nil {
		if size > fileSize {
			return fuse.Status(syscall.EFBIG)
		}
		if size < x.size {
			clear(x.data[size:x.size])
		}
		x.size = size
	}
	out.AttrValid = 3600
	f.attr(in.NodeId, x, &out.Attr)
	return fuse.OK
}

func (f *floor) Create(_ <-chan struct{}, _ *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	data, err := unix.Mmap(-1, 0, fileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fuse.Status(syscall.ENOSPC)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	x := &file{name: name, data: data}
	f.files[f.next], f.names[name] = x, f.next
	f.entry(f.next, x, &out.EntryOut)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return fuse.OK
}

func (f *floor) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return fuse.OK
}

func (f *floor) Unlink(_ <-chan struct{}, _ *fuse.InHeader, name string) fuse.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := f.names[name]
	if !ok {
		return fuse.ENOENT
	}
	delete(f.names, name)
	f.files[id].name = ""
	return fuse.OK
}

func (f *floor) Forget(id, _ uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.files[id]; x != nil && x.name == "" {
		_ = unix.Munmap(x.data)
		delete(f.files, id)
	}
}

func (f *floor) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	f.mu.RLock()
	x := f.files[in.NodeId]
	f.mu.RUnlock()
	end := in.Offset + uint64(len(data))
	if end > fileSize {
		return 0, fuse.Status(syscall.EFBIG)
	}
	copy(x.data[in.Offset:], data)
	f.mu.Lock()
	x.size = max(x.size, end)
	f.mu.Unlock()
	return uint32(len(data)), fuse.OK
}

func (f *floor) Read(_ <-chan struct{}, in *fuse.ReadIn, _ []byte) (fuse.ReadResult, fuse.Status) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	x := f.files[in.NodeId]
	if in.Offset >= x.size {
		return fuse.ReadResultData(nil), fuse.OK
	}
	return fuse.ReadResultData(x.data[in.Offset:min(in.Offset+uint64(in.Size), x.size)]), fuse.OK
}

func (f *floor) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status                 { return fuse.OK }
func (f *floor) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status                 { return fuse.ENOSYS }
func (f *floor) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status               { return fuse.ENOSYS }
func (f *floor) Release(<-chan struct{}, *fuse.ReleaseIn)                         {}
func (f *floor) ReleaseDir(*fuse.ReleaseIn)                                       {}
func (f *floor) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status              { return fuse.OK }
func (f *floor) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }
func (f *floor) ReadDir(<-chan struct{}, *fuse.ReadIn, *fuse.DirEntryList) fuse.Status {
	return fuse.OK
}

func (f *floor) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.Frsize, out.Blocks, out.Bfree, out.Bavail, out.NameLen = 4096, 4096, 1<<22, 1<<21, 1<<21, 255
	return fuse.OK
}
