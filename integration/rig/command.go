package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// run runs a program and returns what it printed on its standard output. The error has what it printed elsewhere. When ctx ends, its whole process group does.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	var out, diagnostics bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return out.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, tail(diagnostics.String()+out.String(), 30))
	}
	return out.String(), nil
}

// unpack extracts archives of packages below root. Their directories may be symbolic links there (/lib to usr/lib).
func unpack(ctx context.Context, root string, debs []string) error {
	const script = `root=$1; shift; for d; do dpkg-deb --fsys-tarfile "$d" |
		tar -C "$root" -x --keep-directory-symlink --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale || exit 1; done`
	_, err := run(ctx, "", nil, "bash", append([]string{"-o", "pipefail", "-c", script, "unpack", root}, debs...)...)
	return err
}

// tail returns the last n lines.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
