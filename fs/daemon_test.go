package fs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// The program under test on a mount must be another process than the daemon: a Go program can deadlock on its own mount.
// So the test binary runs itself as the daemon and talks to it over its standard input and output.

const (
	daemonEnv = "PMEMFS_TEST_DAEMON"
	clientEnv = "PMEMFS_TEST_CLIENT"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(daemonEnv) != "":
		daemonMain(os.Getenv(daemonEnv))
	case os.Getenv(clientEnv) != "":
		clientMain(os.Getenv(clientEnv))
	default:
		os.Exit(m.Run())
	}
}

// localCommitter makes the changes of a volume durable on its own region and nowhere else.
type localCommitter struct {
	vol    *volume.Volume
	region pmem.Region
	drains atomic.Uint64
	bomb   atomic.Bool // Fsync panics
	slow   atomic.Bool // Fsync takes a millisecond

	mu     sync.Mutex // protects all below, and orders jobs
	sealed uint64     // last group that is durable
	err    error
}

func (c *localCommitter) Fsync(ino volume.Ino, _ bool) error {
	if c.bomb.Load() {
		panic("the committer was told to panic")
	}
	if c.slow.Load() {
		time.Sleep(time.Millisecond)
	}
	lsn, err := c.vol.FlushFile(ino)
	if err != nil {
		return err
	}
	return c.reach(lsn)
}

func (c *localCommitter) SyncAll() error {
	lsn, err := c.vol.FlushAll()
	if err != nil {
		return err
	}
	return c.reach(lsn)
}

func (c *localCommitter) reach(lsn uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if lsn <= c.sealed {
		return nil
	}
	if _, err := c.vol.CloseGroup(); err != nil {
		return err
	}
	return c.run()
}

func (c *localCommitter) Checkpoint() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	for more := true; more; {
		var err error
		if more, err = c.vol.Reclaim(); err != nil && !errors.Is(err, volume.ErrShort) {
			return err
		}
		if _, err := c.vol.CloseEpoch(); err != nil {
			return err
		}
		if err := c.run(); err != nil {
			return err
		}
	}
	return nil
}

// run executes all queued jobs. The caller holds c.mu.
func (c *localCommitter) run() error {
	for j := c.vol.NextJob(); j != nil; j = c.vol.NextJob() {
		if err := pmem.Drain(c.region, j.Ranges, j.Seal); err != nil {
			return err
		}
		c.drains.Add(1)
		if !j.Super {
			c.sealed = j.LSN
		}
		c.vol.Sealed(j)
	}
	return nil
}

func (c *localCommitter) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *localCommitter) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.vol.Stop(err)
}

type daemonConfig struct {
	Point, Options string
	Size           uint64 // bytes of the pool
	Debug          bool
}

// answer is what the daemon says to each command. The first one says that the mount answers.
type answer struct {
	Err      string
	Counts   Counts
	Drains   uint64
	Ended    bool // Serve would return
	Findings []string
}

var poolUUID = [16]byte{'f', 's', ' ', 't', 'e', 's', 't'}

func daemonMain(config string) {
	out := json.NewEncoder(os.Stdout)
	logrus.SetOutput(os.Stderr)
	if err := serveCommands(config, out); err != nil {
		out.Encode(answer{Err: err.Error()})
		os.Exit(1)
	}
}

func serveCommands(config string, out *json.Encoder) error {
	var cfg daemonConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	opts, err := ParseOptions(cfg.Options)
	if err != nil {
		return err
	}
	vol, c, err := newVolume(cfg.Size, opts)
	if err != nil {
		return err
	}
	m, err := Mount(Config{Volume: vol, Committer: c, Options: opts, Debug: cfg.Debug}, cfg.Point)
	if err != nil {
		return err
	}
	out.Encode(answer{})
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		out.Encode(obey(commands.Text(), m, c))
	}
	return m.Abort()
}

func newVolume(size uint64, opts Options) (*volume.Volume, *localCommitter, error) {
	region := pmem.NewHeap(size)
	params := volume.Params{PoolUUID: poolUUID, HashKey: [16]byte{1, 2, 3}, Mode: 0755}
	if err := volume.Format(region, params); err != nil {
		return nil, nil, fmt.Errorf("format: %w", err)
	}
	vol, _, err := volume.Open(region, volume.Options{PoolUUID: poolUUID, Term: 1, Now: now, NoAtime: opts.NoAtime, StrictAtime: opts.StrictAtime})
	if err != nil {
		return nil, nil, fmt.Errorf("open: %w", err)
	}
	return vol, &localCommitter{vol: vol, region: region, sealed: vol.LSN()}, nil
}

func now() volume.Time {
	t := time.Now()
	return volume.Time{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}

func obey(command string, m *Mounted, c *localCommitter) answer {
	var err error
	var a answer
	switch command {
	case "counts":
	case "fail":
		c.fail(errors.New("the target has gone"))
	case "bomb":
		c.bomb.Store(true)
	case "slow":
		c.slow.Store(true)
	case "sync":
		err = c.SyncAll()
	case "checkpoint":
		err = c.Checkpoint()
	case "unmount":
		err = m.Unmount()
	case "abort":
		err = m.Abort()
	case "check":
		a.Findings, err = check(c)
	default:
		err = fmt.Errorf("unknown command %q", command)
	}
	if err != nil {
		a.Err = err.Error()
	}
	select {
	case <-m.Done():
		a.Ended = true
	default:
	}
	a.Counts, a.Drains = m.Counts(), c.drains.Load()
	return a
}

// check looks for inconsistencies in the volume, and in what a new mount of the same bytes would find.
func check(c *localCommitter) ([]string, error) {
	var found []string
	report := func(where string) func(volume.Finding) {
		return func(f volume.Finding) { found = append(found, fmt.Sprintf("%s: %+v", where, f)) }
	}
	if err := c.vol.Check(report("live")); err != nil {
		return found, err
	}
	again, _, err := volume.Open(c.region, volume.Options{PoolUUID: poolUUID, Term: 2, Now: now})
	if err != nil {
		return found, fmt.Errorf("open again: %w", err)
	}
	return found, again.Check(report("recovered"))
}

// daemon is a running one, seen from the test.
type daemon struct {
	t     *testing.T
	point string
	cmd   *exec.Cmd
	in    *json.Decoder
	out   *os.File     // write end of its standard input
	fds   map[int]bool // files of the mount that the test has open
	ended bool
}

const testPool = 64 << 20

// mount starts a daemon, and at the end of the test unmounts it and checks the pool.
func mount(t *testing.T, options string) *daemon {
	return mountSized(t, options, testPool)
}

func mountSized(t *testing.T, options string, size uint64) *daemon {
	t.Helper()
	d := start(t, daemonConfig{Point: newPoint(t), Options: options, Size: size})
	t.Cleanup(d.finish)
	return d
}

// newPoint returns a directory that every user can reach.
func newPoint(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: it mounts a file system")
	}
	point := t.TempDir()
	if err := os.Chmod(filepath.Dir(point), 0755); err != nil {
		t.Fatal(err)
	}
	return point
}

func start(t *testing.T, cfg daemonConfig) *daemon {
	t.Helper()
	d, a := launch(t, cfg)
	if a.Err != "" {
		t.Fatalf("daemon: %s", a.Err)
	}
	return d
}

// launch starts a daemon and returns its first answer.
func launch(t *testing.T, cfg daemonConfig) (*daemon, answer) {
	t.Helper()
	config, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stdin, toDaemon, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromDaemon, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), daemonEnv+"="+string(config))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	stdout.Close()
	d := &daemon{t: t, point: cfg.Point, cmd: cmd, in: json.NewDecoder(fromDaemon), out: toDaemon,
		fds: map[int]bool{}}
	var first answer
	t.Cleanup(func() {
		d.kill()
		if first.Err == "" { // else the mount, if there is one, is another daemon's
			syscall.Unmount(cfg.Point, syscall.MNT_DETACH)
		}
		toDaemon.Close()
		fromDaemon.Close()
	})
	first = d.receive()
	return d, first
}

func (d *daemon) receive() answer {
	d.t.Helper()
	var a answer
	if err := d.in.Decode(&a); err != nil {
		d.t.Fatalf("the daemon does not answer: %v", err)
	}
	return a
}

// ask sends a command and returns the answer.
func (d *daemon) ask(command string) answer {
	d.t.Helper()
	if _, err := fmt.Fprintln(d.out, command); err != nil {
		d.t.Fatalf("command %s: %v", command, err)
	}
	return d.receive()
}

// tell is ask for a command that must succeed.
func (d *daemon) tell(command string) answer {
	d.t.Helper()
	a := d.ask(command)
	if a.Err != "" {
		d.t.Fatalf("%s: %s", command, a.Err)
	}
	return a
}

// kill ends the daemon as a crash would.
func (d *daemon) kill() {
	if !d.ended {
		d.ended = true
		d.cmd.Process.Kill()
		d.cmd.Wait()
	}
}

// finish unmounts, syncs and checks.
func (d *daemon) finish() {
	for fd := range d.fds {
		unix.Close(fd)
	}
	if d.ended {
		return
	}
	d.tell("unmount")
	d.tell("sync")
	for _, f := range d.tell("check").Findings {
		d.t.Errorf("check: %s", f)
	}
}

func (d *daemon) path(name string) string { return filepath.Join(d.point, name) }

// requests runs f and returns what it cost: requests by opcode and drains. FORGET and RELEASE come when the kernel likes
// and are left out.
func (d *daemon) requests(f func()) (map[Op]uint64, uint64) {
	d.t.Helper()
	before := d.tell("counts")
	f()
	after := d.tell("counts")
	got := map[Op]uint64{}
	for op := range after.Counts {
		n := after.Counts[op] - before.Counts[op]
		if n != 0 && Op(op) != OpForget && Op(op) != OpRelease {
			got[Op(op)] = n
		}
	}
	return got, after.Drains - before.Drains
}
