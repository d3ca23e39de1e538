package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/target"
)

// The tests run this very binary as the daemon.
const asDaemon = "PMEMFS_TEST_AS_DAEMON"

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// output collects what a process says.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func command(env []string, args ...string) (*exec.Cmd, *output) {
	cmd := exec.Command(os.Args[0], args...)
	// Without this a program built with the race detector sleeps a second before it exits.
	cmd.Env = append(append(os.Environ(), asDaemon+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	log := new(output)
	cmd.Stderr = log
	return cmd, log
}

// daemon starts the program and returns its ready line.
func daemon(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, ready string, log *output) {
	t.Helper()
	cmd, log = command(env, args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	ready, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("no ready line: %v\n%s", err, log)
	}
	return cmd, strings.TrimSpace(ready), log
}

// wait returns the exit code of a process that must end soon.
func wait(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	if ee := new(exec.ExitError); errors.As(err, &ee) {
		return ee.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// run runs the program to its end.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd, log := command(nil, args...)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return wait(t, cmd), out.String(), log.String()
}

// files makes a pool directory with one pool set file, and a configuration for it.
func files(t *testing.T) (dir, conf string) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "p.set"), fmt.Sprintf("PMEMPOOLSET\n2M %s/p.part\n", dir))
	conf = filepath.Join(dir, "target.toml")
	write(t, conf, fmt.Sprintf("listen = \"127.0.0.1:0\"\nfabric = \"127.0.0.1:0\"\npool_dir = %q\nsocket = %q\ndurability = \"memory\"\n",
		dir, filepath.Join(dir, "sock")))
	return dir, conf
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask sends one request on a control connection.
func ask(t *testing.T, c net.Conn, ty wire.Type, body []byte) wire.Frame {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if err := wire.WriteFrame(c, wire.Frame{Type: ty, ID: 1, Body: body}); err != nil {
		t.Fatal(err)
	}
	f, err := wire.ReadFrame(c)
	if err != nil || f.Status != wire.StatusOK {
		t.Fatalf("%v: %v %v", ty, err, f.Status)
	}
	return f
}

// The daemon says that it is ready, serves, and ends with 0 on SIGTERM while a session is open; the pool is free then.
func TestDaemon_SIGTERM(t *testing.T) {
	dir, conf := files(t)
	sock, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	cmd, ready, log := daemon(t, []string{"NOTIFY_SOCKET=" + filepath.Join(dir, "notify")}, "--config", conf)
	var addr, fabric, pools string
	if n, err := fmt.Sscanf(ready, "listening on %s fabric %s pools in %s", &addr, &fabric, &pools); n != 3 || pools != dir {
		t.Fatalf("ready line %q: %v", ready, err)
	}
	addr = strings.TrimSuffix(addr, ",")
	note := make([]byte, 64)
	sock.SetReadDeadline(time.Now().Add(patience))
	if n, err := sock.Read(note); err != nil || string(note[:n]) != "READY=1" {
		t.Errorf("notification %q, %v", note[:n], err)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pool, writer := poolset.NewUUID(), poolset.NewUUID()
	ask(t, c, wire.TypeCreate, (&wire.Create{Attr: wire.Attr{PoolUUID: pool}, Pool: "p.set"}).Append(nil))
	claim := wire.Claim{PoolUUID: pool, Writer: writer, Term: 1, Gen: 1, Lanes: 1, Durability: wire.DurabilityMemory, Methods: wire.AllMethods, Pool: "p.set"}
	ask(t, c, wire.TypeClaim, claim.Append(nil))
	st, err := target.StatusVia(filepath.Join(dir, "sock"))
	if err != nil || len(st.Pools) != 1 || !st.Pools[0].Served {
		t.Errorf("status %+v, %v", st, err)
	}
	cmd.Process.Signal(unix.SIGTERM)
	if code := wait(t, cmd); code != 0 {
		t.Errorf("exit code %d\n%s", code, log)
	}
	if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the control connection after the end: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "p.part.lock")); err != nil || len(b) != 0 {
		t.Errorf("lock file %q, %v", b, err)
	}
	if !strings.Contains(log.String(), "finishing the flushes") {
		t.Errorf("log:\n%s", log)
	}
}

// A killed daemon leaves a socket and a lock behind; the next one takes both over.
func TestDaemon_AfterSIGKILL(t *testing.T) {
	_, conf := files(t)
	cmd, _, _ := daemon(t, nil, "--config", conf)
	cmd.Process.Kill()
	wait(t, cmd)
	again, _, log := daemon(t, nil, "--config", conf)
	again.Process.Signal(unix.SIGINT)
	if code := wait(t, again); code != 0 {
		t.Errorf("exit code %d\n%s", code, log)
	}
}

// A promotion without a daemon waits for one that is about to end.
func TestPromote_WaitsForDyingDaemon(t *testing.T) {
	dir, conf := files(t)
	cmd, ready, _ := daemon(t, nil, "--config", conf)
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.Fields(ready)[2], ","))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pool := poolset.NewUUID()
	ask(t, c, wire.TypeCreate, (&wire.Create{Attr: wire.Attr{PoolUUID: pool}, Pool: "p.set"}).Append(nil))
	claim := wire.Claim{PoolUUID: pool, Writer: poolset.NewUUID(), Term: 1, Gen: 1, Lanes: 1, Durability: wire.DurabilityMemory, Methods: wire.AllMethods, Pool: "p.set"}
	var g wire.Grant
	if err := g.Decode(ask(t, c, wire.TypeClaim, claim.Append(nil)).Body); err != nil {
		t.Fatal(err)
	}
	ask(t, c, wire.TypeSetState, (&wire.SetState{Session: g.Session, Gen: 1}).Append(nil))
	time.AfterFunc(200*time.Millisecond, func() { cmd.Process.Kill(); cmd.Wait() })
	cfg, err := config.LoadTarget(conf)
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	if term, err := target.Promote(cfg, "p.set", false, log); err != nil || term != 2 {
		t.Errorf("term %d, %v (pool in %s)", term, err, dir)
	}
}

func TestDaemon_AddressInUse(t *testing.T) {
	_, conf := files(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"--listen", "--fabric"} {
		code, out, stderr := run(t, "--config", conf, flag, l.Addr().String())
		if code != 1 || out != "" || !strings.Contains(stderr, "choose another port") || !strings.Contains(stderr, strings.TrimPrefix(flag, "--")) {
			t.Errorf("%s: code %d, stdout %q, stderr %q", flag, code, out, stderr)
		}
	}
}

func TestCommandLine(t *testing.T) {
	dir, conf := files(t)
	bad := filepath.Join(dir, "bad.toml")
	write(t, bad, "\npool_dri = \"x\"\n")
	for _, c := range []struct {
		name        string
		args        []string
		code        int
		out, stderr string
	}{
		{"version", []string{"--version"}, 0, "pmemfs-target ", ""},
		{"help", []string{"--help"}, 0, "THERE IS NO AUTHENTICATION YET", ""},
		{"check", []string{"--config", conf, "--check-config"}, 0, `durability = "memory"`, ""},
		{"a flag wins", []string{"--config", conf, "--check-config", "--durability", "media", "--crc", "--listen", "[::1]:9"}, 0,
			"listen = \"[::1]:9\"\nfabric = \"127.0.0.1:0\"\npool_dir = \"" + dir + "\"\nsocket = \"" + dir + "/sock\"\ndurability = \"media\"\nmethods = [\"gpspm\", \"apm\", \"flush\"]\nplatform = \"\"\nbounce = \"0\"\nprovider = \"iwarp\"\ndevice = \"\"\ngid = -1\ncrc = true\n", ""},
		{"unknown key", []string{"--config", bad, "--check-config"}, 1, "", `bad.toml:2: pool_dri: unknown key, did you mean "pool_dir"?`},
		{"no such file", []string{"--config", dir + "/none"}, 1, "", "no such file or directory: write that file"},
		{"no directory", []string{"--config", conf, "--pool-dir", dir + "/none"}, 1, "", "make the directory"},
		{"bad address", []string{"--config", conf, "--listen", "7470"}, 1, "", `"host:port"`},
		{"device of iwarp", []string{"--config", conf, "--device", "x"}, 1, "", `provider = "ibverbs"`},
		{"no platform file", []string{"--config", conf, "--check-config", "--platform", dir + "/none"}, 1, "", dir + "/none"},
		{"bad durability", []string{"--config", conf, "--durability", "disk"}, 1, "", "disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, stderr := run(t, c.args...)
			if (code == 0) != (c.code == 0) || !strings.Contains(out, c.out) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("code %d\nstdout %q\nstderr %q", code, out, stderr)
			}
		})
	}
}

func TestStatus_AsksTheDaemon(t *testing.T) {
	dir, conf := files(t)
	for _, args := range [][]string{{"--config", conf, "--status"}, {"--socket", dir + "/sock", "--status"}} { // the second names no pool directory
		if code, _, stderr := run(t, args...); code != 1 || !strings.Contains(stderr, "no pmemfs-target is running") {
			t.Errorf("%q without a daemon: exit %d, %q", args, code, stderr)
		}
	}
	cmd, _, _ := daemon(t, nil, "--config", conf)
	code, stdout, stderr := run(t, "--config", conf, "--status")
	var st target.Status
	if err := json.Unmarshal([]byte(stdout), &st); err != nil || code != 0 || st.Listen == "" || st.Dir == "" {
		t.Errorf("exit %d, %v, %q, %q", code, err, stdout, stderr)
	}
	cmd.Process.Signal(unix.SIGTERM)
	if code := wait(t, cmd); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}
