package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// scene is the stage: side A is the first initiator, side B its target.
type scene struct {
	runner
	dir      string
	sabotage string

	addrB, fabricB string // control and fabric address of B's target daemon
	appender       *exec.Cmd
	treeSum        string // checksums of the source tree as unpacked
}

const (
	poolSize = "256M"
	seed     = "first"
)

func (s *scene) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *scene) play() error {
	steps := []struct {
		what string
		fn   func() error
	}{
		{"install what is missing, build, make install", s.install},
		{"start pmemfs-target on loopback", s.startTarget},
		{"make the pool from a pool set file (pmemfs mkpool)", s.makePool},
		{"mount -t fuse.pmemfs CONFIG MOUNTPOINT", s.mountA},
		{"the other two ways to mount: mount -t fuse, pmemfs mount", s.otherMounts},
		{"sqlite3, WAL and DELETE mode, synchronous=FULL", s.sqlite},
		{"unpack a source tree with tar, pmemfs sync", s.tree},
		{"change a file through mmap and msync", s.msync},
		{"append loop with fsync, kill -9 of the initiator in its middle", s.killInitiator},
		{"pmemfs promote on the target's side", s.promote},
		{"mount the replica", s.mountB},
		{"every acknowledged record is there", s.checkAppend},
		{"sqlite's integrity_check", s.checkSQLite},
		{"the checksums of the tree match", s.checkTree},
		{"the bytes stored by msync are there", s.checkMsync},
		{"the old initiator comes back and is refused", s.oldRefused},
		{"the old initiator becomes the target of the new primary", s.attachOld},
		{"both pools are equal byte for byte after pmemfs sync", s.comparePools},
	}
	for _, st := range steps {
		if err := s.do(st.what, st.fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) install() error {
	restore, err := saveInstalled(s.path("saved"))
	if err != nil {
		return err
	}
	s.later(restore)
	for _, target := range []string{"deps", "build", "install"} {
		args := []string{target}
		if s.sabotage != "" {
			args = append(args, "SABOTAGE="+s.sabotage)
		}
		if _, err := run("make", args...); err != nil {
			return err
		}
	}
	_, err = run("go", "build", "-o", s.path("workload"), "./integration/workload")
	return err
}

var installedFiles = []string{"/usr/local/bin/pmemfs", "/usr/local/bin/pmemfs-target", "/sbin/mount.fuse.pmemfs", "/sbin/umount.fuse.pmemfs"}

// saveInstalled sets aside an installation that was there before and returns what brings it back.
func saveInstalled(dir string) (restore func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var saved []string
	for _, path := range installedFiles {
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if _, err := run("cp", "-a", path, dir); err != nil {
			return nil, err
		}
		saved = append(saved, path)
	}
	return func() {
		_, _ = run("make", "uninstall")
		for _, path := range saved {
			_, _ = run("cp", "-a", filepath.Join(dir, filepath.Base(path)), path)
		}
	}, nil
}

func (s *scene) startTarget() (err error) {
	s.addrB, s.fabricB, err = s.target("b", s.path("b"))
	if err != nil {
		return err
	}
	return os.WriteFile(s.path("b", "replica.set"), fmt.Appendf(nil, "PMEMPOOLSET\n%s %s\n", poolSize, s.path("b", "replica.pool")), 0o644)
}

// target starts a target daemon whose pool directory is dir.
func (s *scene) target(name, dir string) (addr, fabric string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	if addr, err = freePort(); err != nil {
		return "", "", err
	}
	if fabric, err = freePort(); err != nil {
		return "", "", err
	}
	conf := fmt.Sprintf("listen = %q\nfabric = %q\npool_dir = %q\nsocket = %q\n", addr, fabric, dir, s.path(name+".sock"))
	if err := os.WriteFile(s.path("target-"+name+".toml"), []byte(conf), 0o644); err != nil {
		return "", "", err
	}
	if _, err := s.startDaemon(s.path("target-"+name+".log"), "pmemfs-target", "--config", s.path("target-"+name+".toml")); err != nil {
		return "", "", err
	}
	return addr, fabric, waitFor(10*time.Second, "pmemfs-target listening on "+addr, func() bool { return listening(addr) })
}

func (s *scene) makePool() error {
	if err := os.MkdirAll(s.path("a"), 0o755); err != nil {
		return err
	}
	set := fmt.Sprintf("PMEMPOOLSET\n%s %s\nREPLICA 127.0.0.1 replica.set\n", poolSize, s.path("a", "a.pool"))
	if err := os.WriteFile(s.path("a", "a.set"), []byte(set), 0o644); err != nil {
		return err
	}
	if err := s.config("a.toml", s.path("a", "a.set"), s.addrB); err != nil {
		return err
	}
	_, err := run("pmemfs", "mkpool", s.path("a.toml"))
	return err
}

// config writes the configuration of a mount; addr is empty for one without a target.
func (s *scene) config(name, set, addr string) error {
	conf := fmt.Sprintf("pool = %q\n", set)
	if addr != "" {
		conf += fmt.Sprintf("\n[target.\"127.0.0.1\"]\naddress = %q\n", addr)
	}
	return os.WriteFile(s.path(name), []byte(conf), 0o644)
}

func (s *scene) mountA() error { return s.mount("mnt-a", "-t", "fuse.pmemfs", s.path("a.toml")) }
func (s *scene) mountB() error {
	if err := s.config("b.toml", s.path("b", "replica.set"), ""); err != nil {
		return err
	}
	return s.mount("mnt-b", "-t", "fuse.pmemfs", s.path("b.toml"))
}

// mount calls mount(8) and makes sure that a pmemfs answers there.
func (s *scene) mount(name string, args ...string) error {
	dir := s.path(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	s.later(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	if _, err := run("mount", append(args, dir)...); err != nil {
		return err
	}
	return mounted(dir)
}

func mounted(dir string) error {
	out, err := run("findmnt", "-n", "-o", "FSTYPE", dir)
	if err != nil {
		return err
	}
	if out != "fuse.pmemfs" {
		return fmt.Errorf("%s is of type %q, not fuse.pmemfs", dir, out)
	}
	return nil
}

func (s *scene) otherMounts() error {
	if _, err := run("umount", s.path("mnt-a")); err != nil {
		return err
	}
	if err := s.mount("mnt-a", "-t", "fuse", "pmemfs#"+s.path("a.toml")); err != nil {
		return err
	}
	if _, err := run("umount", s.path("mnt-a")); err != nil {
		return err
	}
	if _, err := run("pmemfs", "mount", s.path("a.toml"), s.path("mnt-a")); err != nil {
		return err
	}
	return mounted(s.path("mnt-a"))
}

func (s *scene) sqlite() error {
	for _, mode := range []string{"WAL", "DELETE"} {
		sql := "pragma journal_mode=" + mode + "; pragma synchronous=FULL; create table t(id integer primary key, v text);\n"
		for i := range 200 {
			sql += fmt.Sprintf("insert into t(v) values('row %d in %s mode');\n", i, mode)
		}
		if _, err := run("sqlite3", s.path("mnt-a", mode+".db"), sql); err != nil {
			return err
		}
	}
	return nil
}

// tree unpacks the project's own sources: real files that are at hand on every machine.
func (s *scene) tree() error {
	if _, err := run("tar", "-cf", s.path("tree.tar"), "--exclude=.git", "--exclude=bin", "."); err != nil {
		return err
	}
	if err := os.MkdirAll(s.path("mnt-a", "tree"), 0o755); err != nil {
		return err
	}
	if _, err := run("tar", "-xf", s.path("tree.tar"), "-C", s.path("mnt-a", "tree")); err != nil {
		return err
	}
	var err error
	if s.treeSum, err = sums(s.path("mnt-a", "tree")); err != nil {
		return err
	}
	_, err = run("pmemfs", "sync", s.path("mnt-a"))
	return err
}

func sums(dir string) (string, error) {
	return runIn(dir, "sh", "-c", "find . -type f -print0 | sort -z | xargs -0 sha256sum && find . -printf '%p %m %s %y\n' | sort")
}

func (s *scene) msync() error {
	_, err := run(s.path("workload"), "msync", s.path("mnt-a", "mapped"), seed)
	return err
}

// killInitiator lets the append loop get some way and then kills the daemon under it.
func (s *scene) killInitiator() error {
	pid, err := daemonPID(s.path("mnt-a"))
	if err != nil {
		return err
	}
	s.appender, err = s.startDaemon(s.path("append.log"), s.path("workload"), "append", s.path("mnt-a", "records"), s.path("acked"))
	if err != nil {
		return err
	}
	err = waitFor(60*time.Second, "300 acknowledged records", func() bool {
		b, err := os.ReadFile(s.path("acked"))
		return err == nil && strings.Count(string(b), "\n") >= 300
	})
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if err := s.appender.Wait(); err == nil {
		return errors.New("the append loop ended without an error although its file system was killed")
	}
	return syscall.Unmount(s.path("mnt-a"), syscall.MNT_DETACH)
}

func (s *scene) promote() error {
	_, err := run("pmemfs", "promote", "--config", s.path("target-b.toml"), "replica.set")
	return err
}

func (s *scene) checkAppend() error {
	_, err := run(s.path("workload"), "check-append", s.path("mnt-b", "records"), s.path("acked"))
	return err
}

func (s *scene) checkSQLite() error {
	for _, mode := range []string{"WAL", "DELETE"} {
		out, err := run("sqlite3", s.path("mnt-b", mode+".db"), "pragma integrity_check; select count(*) from t;")
		if err != nil {
			return err
		}
		if out != "ok\n200" {
			return fmt.Errorf("sqlite in %s mode: want ok and 200 rows, got %q", mode, out)
		}
	}
	return nil
}

func (s *scene) checkTree() error {
	got, err := sums(s.path("mnt-b", "tree"))
	if err != nil {
		return err
	}
	if got != s.treeSum {
		return fmt.Errorf("the tree differs\nbefore:\n%.500s\nafter:\n%.500s", s.treeSum, got)
	}
	return nil
}

func (s *scene) checkMsync() error {
	_, err := run(s.path("workload"), "check-msync", s.path("mnt-b", "mapped"), seed)
	return err
}

func (s *scene) oldRefused() error {
	out, err := run("mount", "-t", "fuse.pmemfs", s.path("a.toml"), s.path("mnt-a"))
	if err == nil {
		return errors.New("the old initiator was mounted although its replica has been promoted")
	}
	if !strings.Contains(out, "promoted elsewhere at term ") {
		return fmt.Errorf("the refusal does not say \"promoted elsewhere at term N\": %s", out)
	}
	return nil
}

// attachOld serves the old initiator's part from a second target daemon and mounts the new primary with it.
func (s *scene) attachOld() error {
	if _, err := run("umount", s.path("mnt-b")); err != nil {
		return err
	}
	addr, _, err := s.target("a", s.path("a-served"))
	if err != nil {
		return err
	}
	old := fmt.Sprintf("PMEMPOOLSET\n%s %s\n", poolSize, s.path("a", "a.pool"))
	if err := os.WriteFile(s.path("a-served", "old.set"), []byte(old), 0o644); err != nil {
		return err
	}
	set := fmt.Sprintf("PMEMPOOLSET\n%s %s\nREPLICA 127.0.0.1 old.set\n", poolSize, s.path("b", "replica.pool"))
	if err := os.WriteFile(s.path("b-primary.set"), []byte(set), 0o644); err != nil {
		return err
	}
	if err := s.config("b2.toml", s.path("b-primary.set"), addr); err != nil {
		return err
	}
	if err := s.mount("mnt-b", "-t", "fuse.pmemfs", s.path("b2.toml")); err != nil {
		return err
	}
	if err := os.WriteFile(s.path("mnt-b", "after-failover"), []byte("written to the new primary\n"), 0o644); err != nil {
		return err
	}
	_, err = run("pmemfs", "sync", s.path("mnt-b"))
	return err
}

// comparePools compares the shared areas: all after the pool header. The dirty bitmaps, local to each copy, are zero in this version.
func (s *scene) comparePools() error {
	_, err := run("cmp", "-i", "4096", s.path("a", "a.pool"), s.path("b", "replica.pool"))
	if err != nil {
		return err
	}
	_, err = run("umount", s.path("mnt-b"))
	return err
}

// daemonPID asks the mount who serves it.
func daemonPID(mountpoint string) (int, error) {
	out, err := run("pmemfs", "status", "--json", mountpoint)
	if err != nil {
		return 0, err
	}
	return pidField(out)
}
