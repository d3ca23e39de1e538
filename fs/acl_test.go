package fs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume/posixacl"
)

const noID = 1<<32 - 1

// list is an ACL that names the user nobody. The permissions are those of owner, nobody, group, mask and others.
func list(owner, named, group, mask, other uint16) posixacl.ACL {
	return posixacl.ACL{
		{Tag: posixacl.UserObj, Perm: owner, ID: noID}, {Tag: posixacl.User, Perm: named, ID: nobody},
		{Tag: posixacl.GroupObj, Perm: group, ID: noID}, {Tag: posixacl.Mask, Perm: mask, ID: noID},
		{Tag: posixacl.Other, Perm: other, ID: noID},
	}
}

func setACL(t *testing.T, path, name string, acl posixacl.ACL) {
	t.Helper()
	must(t, unix.Setxattr(path, name, acl.Append(nil), 0))
}

// getACL shows the permissions of an ACL, one digit per entry, "" if there is none.
func getACL(t *testing.T, path, name string) string {
	t.Helper()
	buf := make([]byte, posixacl.MaxSize)
	n, err := unix.Lgetxattr(path, name, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) { // the latter for a symlink
		return ""
	}
	must(t, err)
	acl, err := posixacl.Decode(buf[:n])
	must(t, err)
	var s strings.Builder
	for _, e := range acl {
		fmt.Fprint(&s, e.Perm)
	}
	return s.String()
}

// The kernel checks access by the list, and by the new one at once after each change.
func TestACL_DecidesWhoMay(t *testing.T) {
	d := mount(t, "")
	must(t, os.WriteFile(d.path("file"), []byte("content"), 0600))
	may := func(what, script string, want bool) {
		t.Helper()
		if _, err := shell(t, nobody, d.point, script); (err == nil) != want {
			t.Errorf("%s: %s: %v, want success %v", what, script, err, want)
		}
	}
	const read, write = "cat file", "echo x >> file"
	may("mode", read, false)
	setACL(t, d.path("file"), posixacl.Access, list(6, 4, 0, 7, 0))
	may("reader", read, true)
	may("reader", write, false)
	setACL(t, d.path("file"), posixacl.Access, list(6, 6, 0, 7, 0))
	may("writer", write, true)
	if st := stat(t, d.path("file")); st.Mode&0777 != 0670 {
		t.Errorf("mode %o, want the mask for the group", st.Mode)
	}
	must(t, os.Chmod(d.path("file"), 0640))
	may("chmod cuts the mask", read, true)
	may("chmod cuts the mask", write, false)
	if got := getACL(t, d.path("file"), posixacl.Access); got != "66040" {
		t.Errorf("after a chmod the list is %s", got)
	}
	d.tell("checkpoint")
	mustShell(t, 0, "/", "echo 2 > /proc/sys/vm/drop_caches")
	may("after the kernel forgot it", read, true)
	must(t, unix.Removexattr(d.path("file"), posixacl.Access))
	may("removed", read, false)
	must(t, unix.Removexattr(d.path("file"), posixacl.Access))
	if st := stat(t, d.path("file")); st.Mode&0777 != 0640 {
		t.Errorf("mode %o once the list is removed", st.Mode)
	}
	setACL(t, d.path("file"), posixacl.Access, posixacl.ACL{
		{Tag: posixacl.UserObj, Perm: 6, ID: noID}, {Tag: posixacl.GroupObj, Perm: 4, ID: noID}, {Tag: posixacl.Other, Perm: 4, ID: noID}})
	if st := stat(t, d.path("file")); st.Mode&0777 != 0644 || getACL(t, d.path("file"), posixacl.Access) != "" {
		t.Errorf("a list that says no more than a mode: mode %o, list %s", st.Mode, getACL(t, d.path("file"), posixacl.Access))
	}
	may("mode again", read, true)
	err := unix.Setxattr(d.path("file"), posixacl.Default, list(7, 7, 7, 7, 7).Append(nil), 0)
	if err != unix.EACCES {
		t.Errorf("default ACL of a file: %v, want EACCES", err)
	}
}

func TestACL_IsInherited(t *testing.T) {
	d := mount(t, "")
	dir := d.path("dir")
	must(t, os.Mkdir(dir, 0777))
	must(t, os.Chmod(dir, 0777))
	setACL(t, dir, posixacl.Default, list(7, 6, 5, 7, 0))
	mustShell(t, nobody, dir, `umask 077; mkdir sub; echo x > file; mkfifo pipe; ln -s file link; mkdir sub/deep; touch sub/file`)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0666)
	must(t, err)
	d.fds[fd] = true
	must(t, unix.Linkat(fd, "", unix.AT_FDCWD, dir+"/tmp", unix.AT_EMPTY_PATH))
	for name, want := range map[string]struct {
		mode          uint32
		access, deflt string
	}{
		"sub": {0770, "76570", "76570"}, "sub/deep": {0770, "76570", "76570"}, "sub/file": {0660, "66560", ""},
		"file": {0660, "66560", ""}, "pipe": {0660, "66560", ""}, "link": {0777, "", ""}, "tmp": {0660, "66560", ""},
	} {
		path := dir + "/" + name
		mode, access, deflt := stat(t, path).Mode&07777, getACL(t, path, posixacl.Access), getACL(t, path, posixacl.Default)
		if mode != want.mode || access != want.access || deflt != want.deflt {
			t.Errorf("%s: mode %o, access %q, default %q; want %+v", name, mode, access, deflt, want)
		}
	}
	// With a minimal default ACL only the mode is bounded, and the umask still has no say.
	setACL(t, dir, posixacl.Default, posixacl.ACL{
		{Tag: posixacl.UserObj, Perm: 7, ID: noID}, {Tag: posixacl.GroupObj, Perm: 7, ID: noID}, {Tag: posixacl.Other, Perm: 5, ID: noID}})
	mustShell(t, nobody, dir, `umask 077; echo x > plain`)
	if mode, access := stat(t, dir+"/plain").Mode&07777, getACL(t, dir+"/plain", posixacl.Access); mode != 0664 || access != "" {
		t.Errorf("below a minimal default ACL: mode %o, access %q", mode, access)
	}
}

// Setting an ACL clears set-group-id unless the caller is in the group of the file or is privileged.
func TestACL_ClearsSetGroupID(t *testing.T) {
	d := mount(t, "")
	for _, tc := range []struct {
		uid  uint32
		gid  int
		want uint32
	}{{nobody, 77, 0}, {nobody, nobody, unix.S_ISGID}, {0, 77, unix.S_ISGID}} {
		must(t, os.WriteFile(d.path("file"), nil, 0644))
		must(t, os.Chown(d.path("file"), nobody, tc.gid))
		must(t, unix.Chmod(d.path("file"), 02755))
		mustShell(t, tc.uid, d.point, "setfacl -m u:5:rwx file")
		if got := stat(t, d.path("file")).Mode & 07000; got != tc.want {
			t.Errorf("user %d, group %d: mode bits %o, want %o", tc.uid, tc.gid, got, tc.want)
		}
		must(t, os.Remove(d.path("file")))
	}
}

// Each change of content takes capabilities away from a file, root's too.
func TestFileCapabilitiesAreCleared(t *testing.T) {
	d := mount(t, "")
	path := d.path("file")
	capability := append([]byte{0, 0, 0, 2, 0, 4, 0, 0}, make([]byte, 12)...) // version 2, cap_net_bind_service
	for _, tc := range []struct {
		what string
		do   func(fd int) error
		want error
	}{
		{"read", func(fd int) error { _, err := unix.Pread(fd, make([]byte, 4), 0); return err }, nil},
		{"chmod", func(fd int) error { return unix.Fchmod(fd, 0755) }, nil},
		{"write", func(fd int) error { _, err := unix.Pwrite(fd, []byte("x"), 0); return err }, unix.ENODATA},
		{"direct write", func(int) error {
			direct, err := unix.Open(path, unix.O_WRONLY|unix.O_DSYNC, 0)
			if err == nil {
				_, err = unix.Pwrite(direct, []byte("x"), 0)
				unix.Close(direct)
			}
			return err
		}, unix.ENODATA},
		{"truncate", func(fd int) error { return unix.Ftruncate(fd, 3) }, unix.ENODATA},
		{"chown", func(fd int) error { return unix.Fchown(fd, 5, 5) }, unix.ENODATA},
		{"fallocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, 9999) }, unix.ENODATA},
	} {
		must(t, os.WriteFile(path, []byte("some content"), 0644))
		fd, err := unix.Open(path, unix.O_RDWR, 0)
		must(t, err)
		must(t, unix.Setxattr(path, "security.capability", capability, 0))
		must(t, tc.do(fd))
		if _, err := unix.Getxattr(path, "security.capability", make([]byte, 64)); err != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
		must(t, unix.Close(fd))
	}
}
