package rig

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// release is where a kernel comes from and what its software devices are good for.
type release struct {
	name    string
	sources func(main, security string) []string // for newApt
	suite   string                               // that has the kernel
	meta    string                               // package that depends on the newest kernel
	devices []string                             // types of RDMA device that work between two network namespaces
}

var (
	newest = release{
		name:    "trixie-backports",
		sources: func(main, _ string) []string { return []string{main + " trixie", main + " trixie-backports"} },
		suite:   "trixie-backports",
		meta:    "linux-image-amd64",
		devices: []string{"rxe", "siw"},
	}
	// fallback is for the days on which the newest kernel is not to be had. Its rxe hangs between two network namespaces, and has neither
	// on-demand paging nor FLUSH.
	fallback = release{
		name: "bookworm-security",
		sources: func(main, security string) []string {
			return []string{main + " bookworm", security + " bookworm-security"}
		},
		suite:   "bookworm-security",
		meta:    "linux-image-6.12-amd64",
		devices: []string{"siw"},
	}
)

// kernel is an unpacked kernel.
type kernel struct {
	name    string // as uname -r has it
	version string // of its packages
	dir     string // vmlinux, lib/modules/NAME
	release release
}

func (k *kernel) modules() string { return filepath.Join(k.dir, "lib/modules", k.name) }

// findKernel asks the lists which kernel is the newest, and gets it into the cache.
func findKernel(ctx context.Context, c *cache, a *apt, r release) (*kernel, error) {
	metaVersion, err := a.version(ctx, r.meta, r.suite)
	if err != nil {
		return nil, err
	}
	deps, err := a.depends(ctx, r.meta, metaVersion)
	if err != nil {
		return nil, err
	}
	k := &kernel{release: r}
	for _, d := range deps {
		if name, ok := strings.CutPrefix(d, "linux-image-"); ok {
			k.name = name
		}
	}
	if k.version, err = a.version(ctx, "linux-image-"+k.name, r.suite); err != nil {
		return nil, err
	}
	k.dir, err = c.entry("kernel-"+k.name+"-"+k.version, func(dir string) error { return k.unpack(ctx, a, dir) })
	return k, err
}

// unpack fills dir. A kernel is one package, or since 7.2 one that depends on others of the same name for image and modules.
func (k *kernel) unpack(ctx context.Context, a *apt, dir string) error {
	image := "linux-image-" + k.name
	deps, err := a.depends(ctx, image, k.version)
	if err != nil {
		return err
	}
	pkgs := []string{image + "=" + k.version}
	for _, d := range deps {
		if strings.HasPrefix(d, "linux-") && strings.HasSuffix(d, "-"+k.name) {
			pkgs = append(pkgs, d+"="+k.version)
		}
	}
	debs, err := a.fetch(ctx, pkgs...)
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unpack(ctx, root, debs); err != nil {
		return err
	}
	modules, err := oneOf(filepath.Join(root, "lib/modules", k.name), filepath.Join(root, "usr/lib/modules", k.name))
	if err != nil {
		return err
	}
	image, err = oneOf(filepath.Join(modules, "vmlinuz"), filepath.Join(root, "boot/vmlinuz-"+k.name))
	if err != nil {
		return err
	}
	if err := extractVmlinux(ctx, image, filepath.Join(dir, "vmlinux")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "lib/modules"), 0o755); err != nil {
		return err
	}
	if err := os.Rename(modules, filepath.Join(dir, "lib/modules", k.name)); err != nil {
		return err
	}
	if _, err := run(ctx, "", nil, "depmod", "-b", dir, k.name); err != nil {
		return &UnavailableError{err}
	}
	return errors.Join(os.RemoveAll(root), discard(debs))
}

// extractVmlinux takes the kernel proper out of a compressed image (Linux, Documentation/arch/x86/boot.rst). qemu starts it by its PVH note; in an emulated machine the
// decompression alone would take longer than all else.
func extractVmlinux(ctx context.Context, image, to string) error {
	b, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	payload, err := bootPayload(b)
	if err != nil {
		return fmt.Errorf("%s: %w", image, err)
	}
	var tool []string
	switch {
	case strings.HasPrefix(payload, "\xfd7zXZ"):
		tool = []string{"xz", "-dc", "--single-stream"}
	case strings.HasPrefix(payload, "\x28\xb5\x2f\xfd"):
		tool = []string{"zstd", "-dcq"}
	case strings.HasPrefix(payload, "\x1f\x8b"):
		tool = []string{"gzip", "-dcq"}
	default:
		return fmt.Errorf("%s: compressed in a way that starts with % x", image, payload[:min(4, len(payload))])
	}
	cmd := exec.CommandContext(ctx, tool[0], tool[1:]...)
	cmd.Stdin = strings.NewReader(payload)
	out, toolErr := cmd.Output() // gzip complains of the length behind its stream: what came out decides
	if !strings.HasPrefix(string(out), "\x7fELF") {
		return &UnavailableError{fmt.Errorf("%s: %s gave no ELF file: %w", image, tool[0], toolErr)}
	}
	return os.WriteFile(to, out, 0o644)
}

// bootPayload is the compressed kernel without the four bytes behind it, which give its size.
func bootPayload(b []byte) (string, error) {
	const (
		setupSects    = 0x1f1
		headerMagic   = 0x202
		payloadOffset = 0x248
		payloadLength = 0x24c
	)
	if len(b) < payloadLength+4 || string(b[headerMagic:headerMagic+4]) != "HdrS" {
		return "", errors.New("not a Linux boot image")
	}
	sects := uint64(b[setupSects])
	if sects == 0 {
		sects = 4
	}
	off := (sects+1)*512 + uint64(binary.LittleEndian.Uint32(b[payloadOffset:]))
	n := uint64(binary.LittleEndian.Uint32(b[payloadLength:]))
	if off > uint64(len(b)) || n > uint64(len(b))-off || n < 4 {
		return "", fmt.Errorf("payload of %d bytes at %d in an image of %d", n, off, len(b))
	}
	return string(b[off : off+n-4]), nil
}

// oneOf returns the first path that exists.
func oneOf(paths ...string) (string, error) {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("none of %s is there: the packages are divided in a way that this program does not know", strings.Join(paths, ", "))
}
