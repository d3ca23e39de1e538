package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// git runs git in a directory, apart from the configuration of whoever runs the test, and with every file fsynced.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	args = append([]string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "git", "-c", "user.name=t", "-c", "user.email=t@localhost",
		"-c", "core.fsync=all", "-c", "gc.auto=0", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"}, args...)
	out, err := stage.RunIn(dir, "env", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGit: commits, a clone, a collection of garbage and its own check; then the initiator is killed and the replica has the
// same history, and a clean working tree.
func TestGit(t *testing.T) {
	t.Parallel()
	needs(t, "git", "git")
	r := newRig(t, setup{size: "128M"})
	origin, clone := r.path("origin"), r.path("clone")
	packages := []string{"verbs", "target"}
	if !race {
		packages = append(packages, "fs", "internal", "replicate")
	}
	r.must(copyModule(origin, packages...))
	git(t, origin, "init", "-q")
	for _, dir := range []string{"verbs", "target", "."} {
		git(t, origin, "add", dir)
		git(t, origin, "commit", "-q", "-m", "add "+dir)
	}
	git(t, origin, "mv", "verbs", "adverbs")
	git(t, origin, "commit", "-q", "-m", "move")
	git(t, r.pool.Mountpoint, "clone", "-q", "--no-hardlinks", origin, clone)
	git(t, clone, "rm", "-r", "-q", "target")
	git(t, clone, "commit", "-q", "-m", "remove")
	git(t, clone, "checkout", "-q", "-b", "old", "HEAD~3")
	git(t, clone, "checkout", "-q", "main")
	git(t, clone, "gc", "-q", "--prune=now")
	git(t, origin, "fetch", "-q", clone, "main:from-clone")
	history := git(t, origin, "log", "--all", "--format=%H")
	r.must(r.pool.Sync()) // git does not fsync the directories of its references
	r.must(r.pool.KillDaemon())
	replica := r.takeOver()
	for _, dir := range []string{origin, clone} {
		git(t, dir, "fsck", "--full", "--strict")
		if out := git(t, dir, "status", "--porcelain"); out != "" {
			t.Errorf("%s: the working tree differs from the commit:\n%s", dir, out)
		}
	}
	if got := git(t, origin, "log", "--all", "--format=%H"); got != history {
		t.Errorf("the history is\n%s\nand was\n%s", got, history)
	}
	r.finish(replica)
}

// TestGoBuild: the go command compiles a program of this module, with sources, cache and result on the mount. A second build
// finds everything in the cache, and so does one on the replica, where the program runs as well.
func TestGoBuild(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{size: "192M"})
	r.must(copyModule(r.path("src"), "cmd", "fs", "integration", "internal", "replicate", "target", "verbs"))
	program := r.path("bin/program")
	build := func(flags ...string) string {
		t.Helper()
		cmd := exec.Command("go", append(append([]string{"build", "-o", program}, flags...), "./integration/workload")...)
		cmd.Dir = r.path("src")
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOCACHE="+r.path("cache"), "GOTMPDIR="+r.pool.Mountpoint)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		return string(out)
	}
	build()
	if out := build("-v"); out != "" {
		t.Errorf("the second build compiles again:\n%s", out)
	}
	r.must(r.pool.Sync())
	r.must(r.pool.KillDaemon())
	replica := r.takeOver()
	if out := build("-v"); out != "" {
		t.Errorf("the build on the replica compiles again:\n%s", out)
	}
	_, err := stage.Run(program, "msync", r.path("file"), "seed")
	r.must(err)
	out, err := stage.Run(program, "check-msync", r.path("file"), "seed")
	r.must(err)
	if !strings.Contains(out, "are there") {
		t.Errorf("%s says %q", filepath.Base(program), out)
	}
	r.finish(replica)
}
