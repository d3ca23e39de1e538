package mountinfo

import (
	"strings"
	"testing"
)

const sample = `21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 21 0:35 / /mnt/pool rw,nosuid shared:9 - fuse.pmemfs a.toml rw,user_id=0
41 40 0:36 / /mnt/pool/inner rw - tmpfs tmpfs rw
42 21 0:37 / /mnt/with\040blank rw - fuse.pmemfs b\134c rw
`

func TestFind(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"/mnt/pool", "/mnt/pool"},
		{"/mnt/pool/dir/file", "/mnt/pool"},
		{"/mnt/poolside", ""},
		{"/mnt/pool/inner/x", ""},
		{"/mnt/with blank/x", "/mnt/with blank"},
		{"/etc", ""},
	} {
		e, err := find(strings.NewReader(sample), c.path)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if e != nil {
			got = e.Mountpoint
		}
		if got != c.want {
			t.Errorf("%s: found %q, want %q", c.path, got, c.want)
		}
	}
}

func TestFind_UnreadableLine(t *testing.T) {
	if _, err := find(strings.NewReader("rubbish\n"), "/"); err == nil {
		t.Fatal("no error")
	}
}
