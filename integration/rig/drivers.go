package rig

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// driverSource is where the kernel source has the software RDMA drivers, each in a directory of its own.
const driverSource = "drivers/infiniband/sw"

// drivers are modules that are compiled here.
type drivers struct {
	siw string // siw.ko, which Debian's kernels do not have
	rxe string // rdma_rxe.ko with a fault of the kernel mended; "" where there is none, or rxe is not used
}

// buildDrivers compiles them from Debian's kernel source, in a root of its own, with the compiler that the kernel was compiled with: the kernel's headers depend on it.
func buildDrivers(ctx context.Context, c *cache, a *apt, k *kernel) (d drivers, err error) {
	dir, err := c.entry("drivers-"+k.name+"-"+k.version, func(dir string) error {
		root := filepath.Join(dir, "root")
		if err := driversRoot(ctx, a, k, root); err != nil {
			return err
		}
		if err := settingsOfSiw(filepath.Join(root, "siw")); err != nil {
			return err
		}
		if err := compileDriver(ctx, k, root, "siw", "RDMA_SIW", "siw.ko", dir); err != nil {
			return err
		}
		if slices.Contains(k.release.devices, "rxe") {
			mended, err := mendRxe(filepath.Join(root, "rxe"))
			if err == nil && mended {
				err = compileDriver(ctx, k, root, "rxe", "RDMA_RXE", "rdma_rxe.ko", dir)
			}
			if err != nil {
				return err
			}
		}
		return os.RemoveAll(root)
	})
	if err != nil {
		return drivers{}, err
	}
	d.siw, d.rxe = filepath.Join(dir, "siw.ko"), filepath.Join(dir, "rdma_rxe.ko")
	if _, err := os.Stat(d.rxe); err != nil {
		d.rxe = ""
	}
	return d, nil
}

// driversRoot unpacks headers, compiler and source.
func driversRoot(ctx context.Context, a *apt, k *kernel, root string) error {
	tools := []string{"binutils", "make", "bash", "coreutils", "sed", "grep", "mawk", "findutils", "diffutils", "dash", "perl-base"}
	debs, err := a.fetchClosure(ctx, "drivers", k.release.suite, append(tools, "linux-headers-"+k.name)...)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unpack(ctx, root, debs); err != nil {
		return err
	}
	if err := completeRoot(root); err != nil {
		return err
	}
	series := strings.Join(strings.SplitN(k.name, ".", 3)[:2], ".")
	source, err := a.fetch(ctx, "linux-source-"+series+"="+k.version)
	if err != nil {
		return err
	}
	if err := takeSource(ctx, source[0], series, root); err != nil {
		return err
	}
	return errors.Join(discard(debs), discard(source))
}

// takeSource unpacks rxe and siw of the kernel source to ROOT/rxe and ROOT/siw. It ends when it has them: the rest, most of the archive, would take long to decompress.
func takeSource(ctx context.Context, deb, series, root string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const script = `dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/src/linux-source-$2.tar.xz" | xz -dc`
	cmd := exec.CommandContext(ctx, "bash", "-c", script, "source", deb, series)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // killed in the middle of the archive
	}()
	prefix, found := fmt.Sprintf("linux-source-%s/%s/", series, driverSource), false
	for archive := tar.NewReader(out); ; {
		h, err := archive.Next()
		if err != nil {
			return fmt.Errorf("%s in %s: %w", driverSource, filepath.Base(deb), err)
		}
		name, inside := strings.CutPrefix(h.Name, prefix)
		switch {
		case !inside && found:
			return nil
		case !inside || h.Typeflag != tar.TypeReg || !strings.HasPrefix(name, "rxe/") && !strings.HasPrefix(name, "siw/"):
			continue
		}
		found = true
		if err := takeFile(filepath.Join(root, path.Clean("/"+name)), archive); err != nil {
			return err
		}
	}
}

func takeFile(to string, from io.Reader) error {
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
}

// completeRoot adds what the scripts of the packages, which are not run, would have made.
func completeRoot(root string) error {
	links := map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/bin/awk": "mawk", "usr/bin/sh": "dash"}
	for path, to := range links {
		path = filepath.Join(root, path)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.Symlink(to, path); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll(filepath.Join(root, "proc"), 0o755), os.MkdirAll(filepath.Join(root, "dev"), 0o755), os.MkdirAll(filepath.Join(root, "tmp"), 0o755))
}

// compileDriver runs make inside of root for the directory source, in a mount namespace that ends with it: the kernel's build needs /proc and /dev/null. The module goes to dir.
func compileDriver(ctx context.Context, k *kernel, root, source, option, module, dir string) error {
	const script = `mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev" &&
		exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin make -s -j2 -C "/usr/src/linux-headers-$2" M="/$3" "CONFIG_$4=m" CONFIG_DEBUG_INFO_BTF_MODULES= modules`
	if _, err := run(ctx, "", nil, "unshare", "--mount", "sh", "-c", script, "compile", root, k.name, source, option); err != nil {
		return err
	}
	if _, err := run(ctx, "", nil, "chroot", root, "/usr/bin/strip", "-g", "/"+source+"/"+module); err != nil {
		return err
	}
	return os.Rename(filepath.Join(root, source, module), filepath.Join(dir, module))
}
