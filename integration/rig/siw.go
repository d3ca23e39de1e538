package rig

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// siwPath is the driver's place in the kernel source.
const siwPath = "drivers/infiniband/sw/siw"

// buildSiw returns the path of siw.ko, which Debian's kernels do not have. It is compiled in a root of its own with the compiler that the kernel was compiled with, which the
// kernel's headers depend on. How siw sets a connection up is fixed in its source; here these settings are module parameters with the same defaults, so that
// a job can change them in /sys/module/siw/parameters.
func buildSiw(ctx context.Context, c *cache, a *apt, k *kernel) (string, error) {
	dir, err := c.entry("siw-settings-"+k.name+"-"+k.version, func(dir string) error {
		root := filepath.Join(dir, "root")
		if err := siwRoot(ctx, a, k, root); err != nil {
			return err
		}
		if err := settingsOfSiw(filepath.Join(root, "work")); err != nil {
			return err
		}
		if err := compileSiw(ctx, k, root); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(root, "work/siw.ko"), filepath.Join(dir, "siw.ko")); err != nil {
			return err
		}
		return os.RemoveAll(root)
	})
	return filepath.Join(dir, "siw.ko"), err
}

// siwRoot unpacks headers, compiler and source.
func siwRoot(ctx context.Context, a *apt, k *kernel, root string) error {
	tools := []string{"binutils", "make", "bash", "coreutils", "sed", "grep", "mawk", "findutils", "diffutils", "dash", "perl-base"}
	debs, err := a.fetchClosure(ctx, k.release.suite, append(tools, "linux-headers-"+k.name)...)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "work"), 0o755); err != nil {
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
	if err := takeSource(ctx, source[0], series, filepath.Join(root, "work")); err != nil {
		return err
	}
	return errors.Join(discard(debs), discard(source))
}

// takeSource unpacks the driver's directory of the kernel source into dir. It ends when it has the directory: the rest, most of the archive, would take long to decompress.
func takeSource(ctx context.Context, deb, series, dir string) error {
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
	prefix, found := fmt.Sprintf("linux-source-%s/%s/", series, siwPath), false
	for archive := tar.NewReader(out); ; {
		h, err := archive.Next()
		switch {
		case err != nil:
			return fmt.Errorf("%s in %s: %w", siwPath, filepath.Base(deb), err)
		case !strings.HasPrefix(h.Name, prefix) && found:
			return nil
		case !strings.HasPrefix(h.Name, prefix) || h.Typeflag != tar.TypeReg:
			continue
		}
		found = true
		text, err := io.ReadAll(archive)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
}

// settingsOfSiw turns the constants of the set-up into module parameters.
func settingsOfSiw(dir string) error {
	for _, e := range []struct{ file, old, new string }{
		{"siw_main.c", `^const bool (mpa_crc_required|mpa_crc_strict|peer_to_peer);`, "bool $1;\nmodule_param($1, bool, 0644);"},
		{"siw_main.c", `^u_char mpa_version = MPA_REVISION_2;`, "unsigned char mpa_version = MPA_REVISION_2;\nmodule_param(mpa_version, byte, 0644);"},
		{"siw.h", `^extern const bool (mpa_crc_required|mpa_crc_strict|peer_to_peer);`, "extern bool $1;"},
	} {
		path := filepath.Join(dir, e.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		re := regexp.MustCompile("(?m)" + e.old)
		if !re.Match(text) {
			return fmt.Errorf("%s has no line like %s: this siw is another one", path, e.old)
		}
		if err := os.WriteFile(path, re.ReplaceAll(text, []byte(e.new)), 0o644); err != nil {
			return err
		}
	}
	return nil
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

// compileSiw runs make inside of root, in a mount namespace that ends with it: the kernel's build needs /proc and /dev/null.
func compileSiw(ctx context.Context, k *kernel, root string) error {
	const script = `mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev" &&
		exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin make -s -j2 -C "/usr/src/linux-headers-$2" M=/work CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules`
	if _, err := run(ctx, "", nil, "unshare", "--mount", "sh", "-c", script, "compile", root, k.name); err != nil {
		return err
	}
	_, err := run(ctx, "", nil, "chroot", root, "/usr/bin/strip", "-g", "/work/siw.ko")
	return err
}
