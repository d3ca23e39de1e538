package fs

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Type is the subtype of the mount: the kernel shows fuse.pmemfs.
const Type = "pmemfs"

// Options are the mount options, as mount(8), fstab(5) and mount.fuse3(8) write them after -o. The zero value is "defaults":
// rw, suid, dev, exec, async.
type Options struct {
	ReadOnly    bool // ro
	NoSuid      bool // nosuid
	NoDev       bool // nodev
	NoExec      bool // noexec
	Sync        bool // sync: each change is durable before it returns
	DirSync     bool // dirsync: the same for changes of names
	NoAtime     bool // noatime; the volume must be opened with NoAtime too, and also if ReadOnly
	NoDirAtime  bool // nodiratime
	Relatime    bool // relatime
	StrictAtime bool // strictatime: each read(2) is a request; the volume must be opened with StrictAtime too

	NonEmpty bool // nonempty: hide what the mount point holds

	Inconsistent bool // inconsistent: with ro, also a copy that is marked Inconsistent; for the caller

	FSName  string // fsname=: the source shown in /proc/mounts; the caller sets it if empty
	MaxRead uint32 // max_read=: bytes of the largest READ, 0 = 1 MiB

	Config string // config=: for the caller
	Pool   string // pool=: for the caller
}

// flagOptions are the options without a value that change something.
var flagOptions = map[string]func(*Options){
	"ro":          func(o *Options) { o.ReadOnly = true },
	"rw":          func(o *Options) { o.ReadOnly = false },
	"nosuid":      func(o *Options) { o.NoSuid = true },
	"suid":        func(o *Options) { o.NoSuid = false },
	"nodev":       func(o *Options) { o.NoDev = true },
	"dev":         func(o *Options) { o.NoDev = false },
	"noexec":      func(o *Options) { o.NoExec = true },
	"exec":        func(o *Options) { o.NoExec = false },
	"sync":        func(o *Options) { o.Sync = true },
	"async":       func(o *Options) { o.Sync = false },
	"dirsync":     func(o *Options) { o.DirSync = true },
	"noatime":     func(o *Options) { o.NoAtime, o.Relatime, o.StrictAtime = true, false, false },
	"relatime":    func(o *Options) { o.NoAtime, o.Relatime, o.StrictAtime = false, true, false },
	"strictatime": func(o *Options) { o.NoAtime, o.Relatime, o.StrictAtime = false, false, true },
	"atime":       func(o *Options) { o.NoAtime = false },
	"norelatime":  func(o *Options) { o.Relatime = false },
	"nodiratime":  func(o *Options) { o.NoDirAtime = true },
	"diratime":    func(o *Options) { o.NoDirAtime = false },
	"nonempty":    func(o *Options) { o.NonEmpty = true },

	"inconsistent": func(o *Options) { o.Inconsistent = true },
}

// acceptedOptions change nothing: they speak to mount(8) or systemd, or ask for what every mount does.
var acceptedOptions = map[string]bool{
	"defaults": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true,
	"user": true, "nouser": true, "users": true, "owner": true, "group": true,
	"allow_other": true, "default_permissions": true,
	"auto_unmount": true, // the daemon unmounts when it ends; a mount left by a crash is cleared by the next Mount
}

// ParseOptions reads a comma-separated list. Where options contradict each other, the last one counts. An error names the
// option that is unknown or has a bad value.
func ParseOptions(list string) (Options, error) {
	var o Options
	for opt := range strings.SplitSeq(list, ",") {
		if opt = strings.TrimSpace(opt); opt == "" {
			continue
		}
		if err := o.set(opt); err != nil {
			return Options{}, err
		}
	}
	if o.Inconsistent && !o.ReadOnly {
		return Options{}, errors.New("mount option \"inconsistent\" needs \"ro\": such a copy can be looked at, not changed")
	}
	return o, nil
}

func (o *Options) set(opt string) error {
	if set, ok := flagOptions[opt]; ok {
		set(o)
		return nil
	}
	key, value, hasValue := strings.Cut(opt, "=")
	lower := strings.ToLower(key)
	switch {
	case !hasValue && acceptedOptions[opt], strings.HasPrefix(lower, "x-"):
		return nil
	case hasValue && (key == "user" || key == "comment"):
		return nil
	case opt == "remount":
		return fmt.Errorf("mount option %q: a running mount is changed by the kernel alone, use `mount -i -o remount,...`", opt)
	case hasValue:
		return o.setValue(key, value)
	}
	return unknownOption(opt)
}

func (o *Options) setValue(key, value string) error {
	switch key {
	case "fsname", "config", "pool", "subtype", "max_read":
	default:
		return unknownOption(key)
	}
	if value == "" {
		return fmt.Errorf("mount option %q needs a value", key)
	}
	switch key {
	case "fsname":
		o.FSName = value
	case "config":
		o.Config = value
	case "pool":
		o.Pool = value
	case "subtype":
		if value != Type {
			return fmt.Errorf("mount option subtype=%s: only subtype=%s is possible", value, Type)
		}
	case "max_read":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n < blockSize || n > maxRequest {
			return fmt.Errorf("mount option max_read=%s: give bytes from %d to %d", value, blockSize, maxRequest)
		}
		o.MaxRead = uint32(n)
	}
	return nil
}

func unknownOption(name string) error {
	known := []string{"fsname=", "config=", "pool=", "subtype=", "max_read=", "x-*"}
	for k := range flagOptions {
		known = append(known, k)
	}
	for k := range acceptedOptions {
		known = append(known, k)
	}
	sort.Strings(known)
	return fmt.Errorf("unknown mount option %q; known are %s", name, strings.Join(known, ", "))
}

// flags returns the MS_ bits of mount(2). The kernel takes these options only as bits and refuses them as strings.
func (o *Options) flags() uintptr {
	flags := uintptr(0)
	for _, f := range [...]struct {
		on  bool
		bit uintptr
	}{
		{o.ReadOnly, unix.MS_RDONLY},
		{o.NoSuid, unix.MS_NOSUID},
		{o.NoDev, unix.MS_NODEV},
		{o.NoExec, unix.MS_NOEXEC},
		{o.Sync, unix.MS_SYNCHRONOUS},
		{o.DirSync, unix.MS_DIRSYNC},
		{o.NoAtime, unix.MS_NOATIME},
		{o.NoDirAtime, unix.MS_NODIRATIME},
		{o.Relatime, unix.MS_RELATIME},
		{o.StrictAtime, unix.MS_STRICTATIME},
	} {
		if f.on {
			flags |= f.bit
		}
	}
	return flags
}
