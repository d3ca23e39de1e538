package fs

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A request whose buffer is too short for what its number says is none that the server knows.
func TestIoctl_ShortBuffers(t *testing.T) {
	s, _, ino := newFile(t)
	for _, cmd := range []uint32{unix.FS_IOC_GETFLAGS, unix.FS_IOC_SETFLAGS, fsGetXattr, 0} {
		for _, n := range []int{0, 3} {
			in := fuse.IoctlIn{InHeader: fuse.InHeader{NodeId: ino, Opcode: uint32(OpIoctl)}, Cmd: cmd}
			if st := s.Ioctl(nil, &in, make([]byte, n), &fuse.IoctlOut{}, make([]byte, n)); st != enotty {
				t.Errorf("request %#x with %d bytes: %v, want ENOTTY", cmd, n, st)
			}
		}
	}
}

func TestInodeFlags(t *testing.T) {
	d := mount(t, "")
	must(t, os.Mkdir(d.path("dir"), 0755))
	must(t, os.WriteFile(d.path("file"), []byte("text"), 0666))
	mapped := d.open("mapped", 0)
	must(t, unix.Ftruncate(mapped, 4096))
	mem, err := unix.Mmap(mapped, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(mem)
	chattr := func(flags, name string) {
		t.Helper()
		mustShell(t, 0, d.point, "chattr "+flags+" "+name)
	}
	refused := func(what string, err error) {
		t.Helper()
		if err != unix.EPERM {
			t.Errorf("%s: %v, want EPERM", what, err)
		}
	}
	open := func(name string, flags int) error {
		fd, err := unix.Open(d.path(name), flags, 0644)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}

	before := stat(t, d.path("file")).Ctim
	chattr("+i", "file")
	if after := stat(t, d.path("file")).Ctim; after == before {
		t.Error("chattr left the change time")
	}
	refused("open for writing", open("file", unix.O_WRONLY))
	refused("truncate", unix.Truncate(d.path("file"), 0))
	refused("chmod", unix.Chmod(d.path("file"), 0600))
	refused("unlink", unix.Unlink(d.path("file")))
	refused("link", unix.Link(d.path("file"), d.path("link")))
	refused("rename", unix.Rename(d.path("file"), d.path("moved")))
	refused("setxattr", unix.Setxattr(d.path("file"), "user.x", nil, 0))
	must(t, open("file", unix.O_RDONLY))
	if out := mustShell(t, 0, d.point, "lsattr file"); out[4] != 'i' {
		t.Errorf("lsattr: %s", out)
	}
	if out, err := shell(t, nobody, d.point, "chattr -i file"); err == nil {
		t.Errorf("nobody takes a flag away: %s", out)
	}
	chattr("-i", "file")
	must(t, unix.Chmod(d.path("file"), 0644))

	chattr("+a", "file")
	refused("open for overwriting", open("file", unix.O_WRONLY))
	refused("open with O_TRUNC", open("file", unix.O_WRONLY|unix.O_APPEND|unix.O_TRUNC))
	mustShell(t, 0, d.point, "echo more >> file; touch file")
	if got, _ := os.ReadFile(d.path("file")); string(got) != "textmore\n" {
		t.Errorf("append-only file reads %q", got)
	}
	chattr("-a", "file")

	chattr("+i", "dir")
	refused("create", open("dir/new", unix.O_CREAT|unix.O_WRONLY))
	refused("mkdir", unix.Mkdir(d.path("dir/sub"), 0755))
	refused("rename into", unix.Rename(d.path("file"), d.path("dir/file")))
	chattr("-i", "dir")

	mem[10] = 7 // reaches the file although the flag comes before the write-back
	chattr("+i", "mapped")
	must(t, unix.Fadvise(mapped, 0, 0, unix.FADV_DONTNEED))
	if got, _ := os.ReadFile(d.path("mapped")); len(got) != 4096 || got[10] != 7 {
		t.Error("a mapped store from before the flag is lost")
	}
	chattr("-i", "mapped")

	if out, err := shell(t, 0, d.point, "chattr +j file"); err == nil {
		t.Errorf("an unknown flag was set: %s", out)
	}
	const fsSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR
	if err := ioctl(mapped, fsSetXattr, make([]byte, fsXattrSize)); err != unix.ENOTTY {
		t.Errorf("FS_IOC_FSSETXATTR: %v, want ENOTTY", err)
	}
}
