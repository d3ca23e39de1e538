package fs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseOptions(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Options
		err  string // part of the error
	}{
		{in: "", want: Options{}},
		{in: "defaults,rw,suid,dev,exec,auto,nouser,async", want: Options{}},
		{in: "ro,nosuid,nodev,noexec", want: Options{ReadOnly: true, NoSuid: true, NoDev: true, NoExec: true}},
		{in: "ro,rw,nosuid,suid,nodev,dev,noexec,exec,sync,async", want: Options{}},
		{in: "sync,dirsync", want: Options{Sync: true, DirSync: true}},
		{in: "noatime", want: Options{NoAtime: true}},
		{in: "noatime,relatime", want: Options{Relatime: true}},
		{in: "relatime,strictatime,nodiratime", want: Options{StrictAtime: true, NoDirAtime: true}},
		{in: "strictatime,noatime", want: Options{NoAtime: true}},
		{in: "noatime,atime,nodiratime,diratime", want: Options{}},
		{in: "nofail,_netdev,noauto,user,users,user=root,owner,group", want: Options{}},
		{in: "x-systemd.automount,x-systemd.requires=pmemfs-target.service,X-mount.mkdir,x-gvfs-show", want: Options{}},
		{in: "allow_other,default_permissions,auto_unmount,subtype=pmemfs", want: Options{}},
		{in: "fsname=pool0,max_read=131072", want: Options{FSName: "pool0", MaxRead: 131072}},
		{in: "config=/etc/pmemfs.toml,pool=p=1", want: Options{Config: "/etc/pmemfs.toml", Pool: "p=1"}},
		{in: " ro , ,sync,", want: Options{ReadOnly: true, Sync: true}},

		{in: "ro,noattime", err: `"noattime"`},
		{in: "tragets=a", err: `"tragets"`},
		{in: "inconsistent,ro", want: Options{ReadOnly: true, Inconsistent: true}},
		{in: "inconsistent", err: `needs "ro"`},
		{in: "ro=1", err: `"ro"`},
		{in: "fsname", err: `"fsname"`},
		{in: "fsname=", err: `"fsname" needs a value`},
		{in: "subtype=ext4", err: "subtype=ext4"},
		{in: "max_read=4095", err: "max_read=4095"},
		{in: "max_read=1048577", err: "max_read=1048577"},
		{in: "max_read=-1", err: "max_read=-1"},
		{in: "max_read=99999999999999999999", err: "max_read="},
		{in: "remount,ro", err: "mount -i"},
	} {
		got, err := ParseOptions(tc.in)
		switch {
		case tc.err == "" && err != nil:
			t.Errorf("%q: %v", tc.in, err)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%q: error %v, want one with %q", tc.in, err, tc.err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q: %s", tc.in, diff)
		}
	}
}

func FuzzParseOptions(f *testing.F) {
	for _, s := range []string{"", "ro,sync", "fsname=a,config=b", "x-a=b,user=c", "max_read=65536", ",,=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := ParseOptions(s)
		if err != nil && o != (Options{}) {
			t.Errorf("%q: an error and options %+v", s, o)
		}
		if o.MaxRead != 0 && (o.MaxRead < blockSize || o.MaxRead > maxRequest) {
			t.Errorf("%q: max_read %d", s, o.MaxRead)
		}
	})
}

func TestMountFlags(t *testing.T) {
	for in, want := range map[string]uintptr{
		"":                            0,
		"ro":                          unix.MS_RDONLY,
		"nosuid,nodev,noexec":         unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC,
		"sync,dirsync":                unix.MS_SYNCHRONOUS | unix.MS_DIRSYNC,
		"noatime,nodiratime":          unix.MS_NOATIME | unix.MS_NODIRATIME,
		"relatime":                    unix.MS_RELATIME,
		"strictatime":                 unix.MS_STRICTATIME,
		"nofail,_netdev,x-a,fsname=b": 0,
	} {
		o, err := ParseOptions(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.flags(); got != want {
			t.Errorf("%q: flags %#x, want %#x", in, got, want)
		}
	}
}
