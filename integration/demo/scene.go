package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// scene is the play: side A is the first initiator, side B its target and later the new primary.
type scene struct {
	*stage.Stage
	runner
	sabotage string

	targetB *stage.Target
	a, b    *stage.Pool
	treeSum string // checksums of the source tree as unpacked
}

// seed makes the bytes that are stored through a mapping.
const seed = "first"

func (s *scene) play() error {
	steps := []struct {
		what string
		fn   func() error
	}{
		{"install what is missing, build, make install", s.install},
		{"start pmemfs-target on loopback", s.startTarget},
		{"make the pool from a pool set file (pmemfs mkpool)", s.makePool},
		{"mount -t fuse.pmemfs CONFIG MOUNTPOINT", s.mountA},
		{"the other two ways: mount -t fuse pmemfs#CONFIG, pmemfs mount", s.otherMounts},
		{"sqlite3 in WAL and DELETE mode, synchronous=FULL", s.sqlite},
		{"unpack a source tree with tar, pmemfs sync", s.tree},
		{"change a file through mmap and msync", s.msync},
		{"append loop, fsync after each record; kill -9 of the initiator", s.killInitiator},
		{"pmemfs promote on the target's side", s.promote},
		{"mount the replica", s.mountB},
		{"every acknowledged record is there", s.checkAppend},
		{"sqlite's integrity_check", s.checkSQLite},
		{"the checksums of the tree match", s.checkTree},
		{"the bytes stored by msync are there", s.checkMsync},
		{"the old initiator comes back and is refused", s.oldRefused},
		{"it is attached as the target of the new primary, by a full copy", s.attachOld},
		{"after pmemfs sync both pools are equal byte for byte", s.comparePools},
	}
	for _, st := range steps {
		if err := s.do(st.what, st.fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) startTarget() (err error) {
	if s.targetB, err = s.StartTarget("b"); err != nil {
		return err
	}
	_, err = s.targetB.AddSet("replica.set", s.Path("b", "replica.pool"))
	return err
}

func (s *scene) makePool() (err error) {
	s.a, err = s.NewPool("a", s.Path("a.pool"), []stage.Replica{{Target: s.targetB, Set: "replica.set"}})
	if err != nil {
		return err
	}
	return s.a.Make()
}

func (s *scene) mountA() error { return s.a.SystemMount("-t", "fuse.pmemfs", s.a.Config) }

func (s *scene) otherMounts() error {
	if _, err := stage.Run("umount", s.a.Mountpoint); err != nil {
		return err
	}
	if err := s.a.SystemMount("-t", "fuse", "pmemfs#"+s.a.Config); err != nil {
		return err
	}
	if _, err := stage.Run("umount", s.a.Mountpoint); err != nil {
		return err
	}
	return s.a.Mount()
}

func (s *scene) sqlite() error {
	for _, mode := range []string{"WAL", "DELETE"} {
		sql := "pragma journal_mode=" + mode + "; pragma synchronous=FULL; create table t(id integer primary key, v text);\n"
		for i := range 200 {
			sql += fmt.Sprintf("insert into t(v) values('row %d in %s mode');\n", i, mode)
		}
		if _, err := stage.Run("sqlite3", s.a.Mountpoint+"/"+mode+".db", sql); err != nil {
			return err
		}
	}
	return nil
}

// tree unpacks the project's own sources: real files that are at hand on every machine.
func (s *scene) tree() error {
	if _, err := stage.Run("tar", "-cf", s.Path("tree.tar"), "--exclude=.git", "--exclude=bin", "."); err != nil {
		return err
	}
	dir := s.a.Mountpoint + "/tree"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if _, err := stage.Run("tar", "-xf", s.Path("tree.tar"), "-C", dir); err != nil {
		return err
	}
	var err error
	if s.treeSum, err = sums(dir); err != nil {
		return err
	}
	return s.a.Sync()
}

func sums(dir string) (string, error) {
	return stage.RunIn(dir, "sh", "-c", "find . -type f -print0 | sort -z | xargs -0 sha256sum && find . -printf '%p %m %y %T@\n' | sort")
}

func (s *scene) msync() error {
	_, err := stage.Run(s.Path("workload"), "msync", s.a.Mountpoint+"/mapped", seed)
	return err
}

// killInitiator lets the append loop get some way and then kills the daemon under it.
func (s *scene) killInitiator() error {
	loop, err := s.Daemon("append.log", s.Path("workload"), "append", s.a.Mountpoint+"/records", s.Path("acked"))
	if err != nil {
		return err
	}
	err = stage.WaitFor(60*time.Second, "300 acknowledged records", func() bool {
		b, err := os.ReadFile(s.Path("acked"))
		return err == nil && strings.Count(string(b), "\n") >= 300
	})
	if err != nil {
		return err
	}
	if err := s.a.Kill(); err != nil {
		return err
	}
	late := time.AfterFunc(time.Minute, func() { _ = loop.Process.Kill() })
	err = loop.Wait()
	switch {
	case !late.Stop():
		return errors.New("the append loop did not end within a minute although its file system was killed")
	case err == nil:
		return errors.New("the append loop ended without an error although its file system was killed")
	}
	return nil
}

func (s *scene) promote() error {
	_, err := s.targetB.Promote("replica.set")
	return err
}

func (s *scene) mountB() (err error) {
	s.b, err = s.NewPool("b1", s.Path("b", "replica.pool"), nil)
	if err != nil {
		return err
	}
	return s.b.SystemMount("-t", "fuse.pmemfs", s.b.Config)
}

func (s *scene) checkAppend() error {
	_, err := stage.Run(s.Path("workload"), "check-append", s.b.Mountpoint+"/records", s.Path("acked"))
	return err
}

func (s *scene) checkSQLite() error {
	for _, mode := range []string{"WAL", "DELETE"} {
		out, err := stage.Run("sqlite3", s.b.Mountpoint+"/"+mode+".db", "pragma integrity_check; select count(*) from t;")
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
	got, err := sums(s.b.Mountpoint + "/tree")
	if err != nil {
		return err
	}
	if got != s.treeSum {
		return fmt.Errorf("the tree differs\nbefore:\n%.500s\nafter:\n%.500s", s.treeSum, got)
	}
	return nil
}

func (s *scene) checkMsync() error {
	_, err := stage.Run(s.Path("workload"), "check-msync", s.b.Mountpoint+"/mapped", seed)
	return err
}

func (s *scene) oldRefused() error {
	out, err := stage.Run("mount", "-t", "fuse.pmemfs", s.a.Config, s.a.Mountpoint)
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
	if _, err := stage.Run("umount", s.b.Mountpoint); err != nil {
		return err
	}
	targetA, err := s.StartTarget("a")
	if err != nil {
		return err
	}
	if _, err := targetA.AddSet("old.set", s.a.Part); err != nil {
		return err
	}
	s.b, err = s.NewPool("b2", s.b.Part, []stage.Replica{{Target: targetA, Set: "old.set"}})
	if err != nil {
		return err
	}
	if err := s.b.SystemMount("-t", "fuse.pmemfs", s.b.Config); err != nil {
		return err
	}
	if err := os.WriteFile(s.b.Mountpoint+"/after-failover", []byte("written to the new primary\n"), 0o644); err != nil {
		return err
	}
	return s.b.Sync()
}

// comparePools compares all after the pool header. The dirty bitmaps, local to each copy, are zero in this version.
func (s *scene) comparePools() error {
	if _, err := stage.Run("cmp", "-i", "4096", s.a.Part, s.b.Part); err != nil {
		return err
	}
	return syscall.Unmount(s.b.Mountpoint, 0)
}
