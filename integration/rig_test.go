package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
	"github.com/pmemfs/pmemfs/internal/control"
)

const (
	poolSize = "32M"
	// soon bounds what must not wait for anything: generous, since the machine may be busy.
	soon = 10 * time.Second
	set  = "replica.set"
)

// rig is a mounted pool and its targets.
type rig struct {
	*stage.Stage
	t       *testing.T
	targets []*stage.Target
	pool    *stage.Pool
}

// setup is what a rig can be asked to be. The zero value: one target, durability "memory" in /dev/shm.
type setup struct {
	media   bool
	targets int
	size    string   // of each copy, as in a pool set file; default poolSize
	config  []string // lines for the initiator's configuration
	replica []string // lines for each target's table in it
}

// newRig makes target daemons, a pool and its replicas, and mounts it.
func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	r := newStage(t, s)
	r.must(r.pool.Make())
	r.must(r.pool.Mount())
	return r
}

// newStage does all that comes before mkpool.
func newStage(t *testing.T, s setup) *rig {
	t.Helper()
	r := newBareStage(t, s)
	var replicas []stage.Replica
	for i := range max(s.targets, 1) {
		replicas = append(replicas, stage.Replica{Target: r.startTarget(fmt.Sprintf("t%d", i)), Set: set, Config: s.replica})
	}
	var err error
	r.pool, err = r.NewPool("a", r.Path("a.pool"), replicas, s.config...)
	r.must(err)
	return r
}

// newBareStage has no target and no pool yet.
func newBareStage(t *testing.T, s setup) *rig {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	parent, durability := "/dev/shm", "memory"
	if s.media {
		parent, durability = "/var/tmp", "media"
	}
	dir, err := os.MkdirTemp(parent, "pmemfs-it-")
	if err != nil {
		t.Fatal(err)
	}
	size := poolSize
	if s.size != "" {
		size = s.size
	}
	r := &rig{Stage: &stage.Stage{Dir: dir, Bin: bin, Durability: durability, PoolSize: size}, t: t}
	t.Cleanup(func() {
		r.noCrash()
		if t.Failed() {
			t.Logf("logs:\n%s", r.Logs())
		}
		r.Close()
		os.RemoveAll(dir)
	})
	return r
}

// noCrash fails the test if a program wrote what only a defect makes it write.
func (r *rig) noCrash() {
	logs, err := filepath.Glob(r.Path("*.log"))
	if err != nil {
		r.t.Error(err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			r.t.Error(err)
		}
		for _, sign := range []string{"panic:", "fatal error:", "DATA RACE", "unexpected fault"} {
			if i := bytes.Index(text, []byte(sign)); i >= 0 {
				r.t.Errorf("%s: %.6000s", path, text[i:])
			}
		}
	}
}

// startTarget starts a target with the pool set file of one replica.
func (r *rig) startTarget(name string) *stage.Target {
	r.t.Helper()
	target, err := r.StartTarget(name)
	r.must(err)
	r.targets = append(r.targets, target)
	_, err = target.AddSet(set, r.Path(name, "replica.pool"))
	r.must(err)
	return target
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// path is a file below the mount point of the first initiator.
func (r *rig) path(name string) string { return filepath.Join(r.pool.Mountpoint, name) }

// replicaPart is the part file of target i.
func (r *rig) replicaPart(i int) string { return filepath.Join(r.targets[i].Dir, "replica.pool") }

// promoted promotes the replica of target i and mounts it, without targets of its own.
func (r *rig) promoted(i int) *stage.Pool {
	r.t.Helper()
	_, err := r.targets[i].Promote(set)
	r.must(err)
	p := r.replicaPool(i)
	r.must(p.Mount())
	return p
}

// replicaPool describes the replica of target i as a pool of its own.
func (r *rig) replicaPool(i int) *stage.Pool {
	r.t.Helper()
	p, err := r.NewPool(fmt.Sprintf("r%d", i), r.replicaPart(i), nil)
	r.must(err)
	return p
}

// status asks the daemon of the first initiator.
func (r *rig) status() *control.Status {
	r.t.Helper()
	reply, err := control.Call(r.pool.Mountpoint, control.Request{Op: control.OpStatus}, soon)
	r.must(err)
	return reply.Status
}

// within fails the test if fn takes longer than d. What hangs is left behind.
func within(t *testing.T, d time.Duration, what string, fn func() error) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- fn() }()
	select {
	case err := <-result:
		return err
	case <-time.After(d):
		t.Fatalf("%s: no answer within %v", what, d)
		return nil
	}
}

// wantErrno fails the test unless err is that errno.
func wantErrno(t *testing.T, what string, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// wantText fails the test unless err is an error that says all of words.
func wantText(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want one that says %q", what, words)
		return
	}
	wantWords(t, what, err.Error(), words...)
}

func wantWords(t *testing.T, what, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s: %q is not in: %s", what, w, text)
		}
	}
}

// writeSync writes a file anew and makes it durable.
func writeSync(path string, data []byte) error { return store(path, data, true) }

func store(path string, data []byte, sync bool) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// workload is one program of integration/workload that runs in a mount.
type workload struct {
	r           *rig
	cmd         *exec.Cmd
	file, acked string
}

// appendLoop starts a program that appends records to name, each with an fsync.
func (r *rig) appendLoop(name string) *workload {
	r.t.Helper()
	return r.appendLoopIn(r.pool, name)
}

func (r *rig) appendLoopIn(p *stage.Pool, name string) *workload {
	r.t.Helper()
	w := &workload{r: r, file: name, acked: r.Path("acked-" + name)}
	var err error
	w.cmd, err = r.Daemon("append-"+name+".log", filepath.Join(bin, "workload"), "append", filepath.Join(p.Mountpoint, name), w.acked)
	r.must(err)
	return w
}

// waitFor returns when n more records are acknowledged.
func (w *workload) waitFor(n int) {
	w.r.t.Helper()
	want := w.count() + n
	w.r.must(stage.WaitFor(60*time.Second, fmt.Sprintf("%d acknowledged records in %s", want, w.file), func() bool { return w.count() >= want }))
}

func (w *workload) count() int {
	b, _ := os.ReadFile(w.acked) // absent: nothing yet
	return strings.Count(string(b), "\n")
}

// stop ends the program by a signal; it must not have met an error before.
func (w *workload) stop() {
	w.r.t.Helper()
	w.r.must(w.cmd.Process.Kill())
	_ = w.cmd.Wait() // by the signal
	log, err := os.ReadFile(w.r.Path("append-" + w.file + ".log"))
	w.r.must(err)
	if len(log) > 0 {
		w.r.t.Errorf("%s met an error: %s", w.file, log)
	}
}

// ended waits for the end of the program, whose file system has died.
func (w *workload) ended() {
	w.r.t.Helper()
	_ = within(w.r.t, soon, "end of the program that appends to "+w.file, w.cmd.Wait)
}

// check makes sure that every acknowledged record is in p.
func (w *workload) check(p *stage.Pool) {
	w.r.t.Helper()
	if _, err := stage.Run(filepath.Join(bin, "workload"), "check-append", filepath.Join(p.Mountpoint, w.file), w.acked); err != nil {
		w.r.t.Error(err)
	}
}
