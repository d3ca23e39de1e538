package rig

import (
	"bufio"
	"context"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed guest/init.sh
var guestInit string

//go:embed guest/lib.sh
var guestLib string

//go:embed guest/pool.sh
var guestPool string

// libs is where Debian has shared libraries.
const libs = "/usr/lib/x86_64-linux-gnu"

// guestPrograms are copied from the userland with the libraries they need. Whatever else a script calls is an applet of busybox.
var guestPrograms = []string{
	"dash", "timeout", "env", "sort", "sha256sum", "stat", "dd", "find", "xargs", "cmp", "diff", "mount", "umount", "findmnt", "nsenter", "unshare", "setsid", "pgrep", "fusermount3",
	"ip", "ss", "strace", "sqlite3", "mkfs.ext4", "e2fsck",
	"rdma", "ibv_devinfo", "ibv_devices", "ibv_rc_pingpong", "rping", "ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw", "ib_send_lat",
}

// guestModules are copied with the modules they need. A name that is built into this kernel, or that it does not have, is left out.
var guestModules = []string{
	"virtio_pci", "virtio_net", "9p", "9pnet_virtio", "virtio_rng", "ext4", "fuse", "nfit", "libnvdimm", "nd_pmem", "dax", "device_dax", "dax_pmem",
	"veth", "dummy", "ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "rdma_rxe", "crc32c_generic", "crc32_generic", "crc32_pclmul", "libcrc32c", "crc32c-cryptoapi",
}

// writeImage makes the initramfs of the guest: no disk, everything in memory. The jobs and the programs under test come in through a shared directory.
func writeImage(ctx context.Context, to, root string, k *kernel, d drivers) error {
	t := initramfs{}
	for _, d := range []string{"/proc", "/sys", "/dev", "/tmp", "/run/netns", "/host", "/src", "/mnt", "/root", "/var/lib", "/var/tmp", "/etc/pmemfs"} {
		t.dir(d)
	}
	for name, to := range map[string]string{"/bin": "usr/bin", "/sbin": "usr/bin", "/lib": "usr/lib", "/lib64": "usr/lib64", "/usr/sbin": "bin", "/etc/mtab": "/proc/mounts"} {
		t.link(name, to)
	}
	t["/dev/console"] = file{mode: modeChar | 0o600, dev: [2]int{5, 1}}
	t.text("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
	t.text("/etc/group", "root:x:0:\n")
	t.text("/etc/hosts", "127.0.0.1 localhost\n")
	t.text("/etc/fuse.conf", "user_allow_other\n")
	t.program("/init", []byte(guestInit))
	t.text("/lib.sh", guestLib)
	t.text("/pool.sh", guestPool)
	if err := addUserland(ctx, t, root); err != nil {
		return err
	}
	if err := addModules(ctx, t, k, d, filepath.Dir(to)); err != nil {
		return err
	}
	return t.write(to)
}

// addUserland adds programs, libraries and the drivers of libibverbs.
func addUserland(ctx context.Context, t initramfs, root string) error {
	for _, p := range guestPrograms {
		from, err := oneOf(filepath.Join(root, "usr/bin", p), filepath.Join(root, "usr/sbin", p), filepath.Join(root, "sbin", p), filepath.Join(root, "bin", p))
		if err != nil {
			return err
		}
		if err := addELF(t, root, "/usr/bin/"+p, from); err != nil {
			return err
		}
	}
	t.link("/usr/bin/sh", "dash") // the shell of busybox prefers its own applets, and its "ip" knows no namespaces
	// Loaded by name at run time: the drivers that libibverbs finds through /etc/libibverbs.d, and libgcc_s, which the C library needs to end a thread.
	for _, p := range []string{"libibverbs.so.1", "librdmacm.so.1", "libgcc_s.so.1"} {
		if err := addELF(t, root, libs+"/"+p, filepath.Join(root, libs, p)); err != nil {
			return err
		}
	}
	for _, p := range []string{"rxe", "siw"} {
		drivers, err := filepath.Glob(filepath.Join(root, libs, "libibverbs/lib"+p+"-rdmav*.so"))
		if err != nil || len(drivers) != 1 {
			return fmt.Errorf("%d drivers of libibverbs for %s (%w)", len(drivers), p, err)
		}
		if err := addELF(t, root, libs+"/libibverbs/"+filepath.Base(drivers[0]), drivers[0]); err != nil {
			return err
		}
		t.text("/etc/libibverbs.d/"+p+".driver", "driver "+p+"\n")
	}
	return addBusybox(ctx, t, root)
}

// addBusybox adds busybox and its applets where no other program has the name.
func addBusybox(ctx context.Context, t initramfs, root string) error {
	from, err := oneOf(filepath.Join(root, "usr/bin/busybox"), filepath.Join(root, "bin/busybox"))
	if err != nil {
		return err
	}
	if err := t.copy("/usr/bin/busybox", from); err != nil {
		return err
	}
	applets, err := run(ctx, "", nil, from, "--list")
	if err != nil {
		return err
	}
	for a := range strings.FieldsSeq(applets) {
		if _, taken := t["/usr/bin/"+a]; !taken {
			t.link("/usr/bin/"+a, "busybox")
		}
	}
	return nil
}

// addELF adds a program or library, its interpreter and the libraries that it names, unless they are there.
func addELF(t initramfs, root, name, from string) error {
	if _, ok := t[name]; ok {
		return nil
	}
	if err := t.copy(name, from); err != nil {
		return err
	}
	f, err := elf.Open(from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, l := range needed {
		if l == "ld-linux-x86-64.so.2" {
			if err := t.copy("/usr/lib64/"+l, filepath.Join(root, libs, l)); err != nil {
				return err
			}
			continue
		}
		if err := addELF(t, root, libs+"/"+l, filepath.Join(root, libs, l)); err != nil {
			return fmt.Errorf("%s needs it: %w", path.Base(name), err)
		}
	}
	return nil
}

// addModules adds modules, not compressed, and an index of them. Scratch is a directory to work in.
func addModules(ctx context.Context, t initramfs, k *kernel, d drivers, scratch string) error {
	dir, err := os.MkdirTemp(scratch, "modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	base := filepath.Join(dir, "lib/modules", k.name)
	paths, err := withDependencies(filepath.Join(k.modules(), "modules.dep"), guestModules)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if err := plainCopy(ctx, filepath.Join(base, p), filepath.Join(k.modules(), p)); err != nil {
			return err
		}
	}
	for _, p := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := plainCopy(ctx, filepath.Join(base, p), filepath.Join(k.modules(), p)); err != nil {
			return err
		}
	}
	if d.siw != "" {
		if err := plainCopy(ctx, filepath.Join(base, "extra/siw.ko"), d.siw); err != nil {
			return err
		}
	}
	if d.rxe != "" {
		stock := filepath.Join(base, "kernel", driverSource, "rxe/rdma_rxe.ko")
		if err := t.copy("/rdma_rxe.unmended.ko", stock); err != nil {
			return err
		}
		if err := plainCopy(ctx, stock, d.rxe); err != nil {
			return err
		}
	}
	if err := stripModules(ctx, base); err != nil {
		return err
	}
	if _, err := run(ctx, "", nil, "depmod", "-b", dir, k.name); err != nil {
		return &UnavailableError{err}
	}
	return filepath.WalkDir(base, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return t.copy("/usr"+strings.TrimPrefix(p, dir), p)
	})
}

// stripModules takes signatures and descriptions of types out of modules: to check and to read them costs an emulated processor more than all else that loading does.
func stripModules(ctx context.Context, dir string) error {
	var modules []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".ko") {
			modules = append(modules, p)
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = run(ctx, "", nil, "strip", append([]string{"--strip-debug", "--remove-section=.BTF"}, modules...)...)
	return err
}

// withDependencies reads modules.dep, "path: paths", and returns the paths of the named modules and of those they need.
func withDependencies(index string, names []string) ([]string, error) {
	f, err := os.Open(index)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var paths []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		p, needed, _ := strings.Cut(lines.Text(), ":")
		name, _, _ := strings.Cut(filepath.Base(p), ".ko")
		if slices.Contains(names, name) {
			paths = append(append(paths, p), strings.Fields(needed)...)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), lines.Err()
}

// plainCopy copies a file, decompressing NAME.xz to NAME.
func plainCopy(ctx context.Context, to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if strings.HasSuffix(from, ".xz") {
		out, err := run(ctx, "", nil, "xz", "-dc", from)
		return errors.Join(err, os.WriteFile(strings.TrimSuffix(to, ".xz"), []byte(out), 0o644))
	}
	b, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, b, 0o644))
}
