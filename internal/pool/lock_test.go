package pool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/poolset"
)

// childEnv makes the test program hold the pool of the named pool set file instead of running tests.
const childEnv = "POOL_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		hold(path)
	}
	os.Exit(m.Run())
}

func hold(path string) {
	set, err := poolset.ParseFile(path)
	if err == nil {
		_, err = Open(set, OpenOptions{Role: "child"})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	time.Sleep(time.Hour)
}

// startHolder runs a process that has the pool open.
func startHolder(t *testing.T, set *poolset.Set) *exec.Cmd {
	t.Helper()
	file := set.Parts[0].Path + ".set"
	text := "PMEMPOOLSET\n"
	for _, p := range set.Parts {
		text += fmt.Sprintf("%d %s\n", p.Size, p.Path)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(cmd) })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("holder: %q, %v", line, err)
	}
	return cmd
}

func stop(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// startSleeper runs a process that has nothing open.
func startSleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(cmd) })
	return cmd
}

// holderFor describes another process as self would.
func holderFor(t *testing.T, pid int) Holder {
	t.Helper()
	h, err := self("mount")
	if err != nil {
		t.Fatal(err)
	}
	h.PID = pid
	if h.start, err = startTime(pid); err != nil {
		t.Fatal(err)
	}
	return h
}

func record(t *testing.T, set *poolset.Set, text []byte) {
	t.Helper()
	if err := os.WriteFile(lockPath(set.Parts[0]), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSecondOpenNamesTheHolder(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{Role: "mount"})
	var busy *InUseError
	if _, err := Open(set, OpenOptions{}); !errors.As(err, &busy) || busy.PID != os.Getpid() || busy.Role != "mount" || busy.Dying {
		t.Errorf("%v", err)
	}
	mustClose(t, p)
	mustClose(t, mustOpen(t, set, OpenOptions{}))
}

func TestOpenAfterKill(t *testing.T) {
	for range 5 {
		set := newPool(t)
		child := startHolder(t, set)
		var busy *InUseError
		if _, err := Open(set, OpenOptions{}); !errors.As(err, &busy) || busy.PID != child.Process.Pid || busy.Role != "child" {
			t.Fatalf("%v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if err := WaitGone(ctx, set); !errors.As(err, &busy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitGone of a living holder: %v", err)
		}
		cancel()
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
		if err := WaitGone(ctx, set); err != nil {
			t.Errorf("WaitGone: %v", err)
		}
		cancel()
		mustClose(t, mustOpen(t, set, OpenOptions{}))
	}
}

// The lock is free, but its last holder still exists: the state in which SIGKILL leaves a process for a moment.
func TestOpenWaitsForADyingProcess(t *testing.T) {
	set := newPool(t)
	old := startSleeper(t)
	line := holderFor(t, old.Process.Pid).encode()
	record(t, set, line)
	start := time.Now()
	_, err := Open(set, OpenOptions{Wait: 100 * time.Millisecond})
	var busy *InUseError
	if !errors.As(err, &busy) || !busy.Dying || busy.PID != old.Process.Pid || time.Since(start) < 100*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if got, err := os.ReadFile(lockPath(set.Parts[0])); err != nil || string(got) != string(line) {
		t.Errorf("the record became %q, %v", got, err)
	}

	var killed atomic.Bool
	timer := time.AfterFunc(150*time.Millisecond, func() {
		killed.Store(true)
		old.Process.Kill()
	})
	defer timer.Stop()
	p := mustOpen(t, set, OpenOptions{})
	if !killed.Load() {
		t.Error("opened before the old process was gone")
	}
	mustClose(t, p)
}

func TestOpenIgnoresRecordsOfOthers(t *testing.T) {
	living := startSleeper(t).Process.Pid
	reused, rebooted, own := holderFor(t, living), holderFor(t, living), holderFor(t, os.Getpid())
	reused.start--
	rebooted.boot = poolset.NewUUID()
	whole := holderFor(t, living).encode()
	for name, text := range map[string][]byte{
		"reused pid":   reused.encode(),
		"another boot": rebooted.encode(),
		"own process":  own.encode(),
		"empty":        nil,
		"garbage":      []byte("\x00\xff -1 x y z\n"),
		"cut short":    whole[:len(whole)-1],
	} {
		set := newPool(t)
		record(t, set, text)
		if name != "own process" {
			if err := WaitGone(context.Background(), set); err != nil {
				t.Errorf("%s: WaitGone: %v", name, err)
			}
			if info, err := Inspect(set); err != nil || info.Holder != nil {
				t.Errorf("%s: Inspect: %+v, %v", name, info.Holder, err)
			}
		}
		p, err := Open(set, OpenOptions{Wait: time.Millisecond})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		mustClose(t, p)
	}
}

func TestWaitGoneOfOwnPool(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{Role: "mount"})
	defer p.Close()
	var busy *InUseError
	if err := WaitGone(context.Background(), set); !errors.As(err, &busy) || busy.PID != os.Getpid() {
		t.Errorf("%v", err)
	}
}

func TestStartTimeOfAnOddName(t *testing.T) {
	dir := t.TempDir()
	odd := dir + "/a) 1 (b"
	if err := os.Symlink("/bin/sleep", odd); err != nil {
		t.Fatal(err)
	}
	before := startSleeper(t)
	cmd := exec.Command(odd, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer stop(cmd)
	a, errA := startTime(before.Process.Pid)
	b, errB := startTime(cmd.Process.Pid)
	if errA != nil || errB != nil || b < a || b-a > 100*60 {
		t.Errorf("%d, %v; %d, %v", a, errA, b, errB)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	h := holderFor(t, os.Getpid())
	for _, role := range []string{"mount", "", "two words"} {
		h.Role = role
		if got, ok := decodeHolder(h.encode()); !ok || got != h {
			t.Errorf("%q: %+v, %v", role, got, ok)
		}
	}
}

// Only one of many openers has the pool at any time, while others remove and create it.
func TestOneHolderAtATime(t *testing.T) {
	set := newPool(t)
	var holders atomic.Int32
	var opened, made atomic.Int64
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := range 40 {
				var p *Pool
				var err error
				if (g+i)%3 == 0 {
					p, err = Create(set, poolset.Attr{}, CreateOptions{Durability: Memory, Sparse: true, SmallForTests: true})
					made.Add(1)
				} else {
					p, err = Open(set, OpenOptions{})
				}
				if err != nil {
					continue
				}
				opened.Add(1)
				if holders.Add(1) != 1 {
					t.Error("two holders at a time")
				}
				holders.Add(-1)
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				if i%4 == 0 {
					Remove(set)
				}
			}
		})
	}
	wg.Wait()
	if opened.Load() < 6 {
		t.Errorf("%d opened, %d tried to make", opened.Load(), made.Load())
	}
}

func FuzzDecodeHolder(f *testing.F) {
	f.Add([]byte("12 345 00112233-4455-6677-8899-aabbccddeeff mount\n"))
	f.Add([]byte("-1 0  \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, ok := decodeHolder(text)
		if !ok {
			return
		}
		if again, ok := decodeHolder(h.encode()); !ok || again != h || h.PID <= 0 {
			t.Fatalf("%q gave %+v, then %+v", text, h, again)
		}
	})
}

func TestOpenWaitsForAHolderThatLeaves(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{Role: "mount"})
	if err := p.Leave(); err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() {
		time.Sleep(2 * lockGrace)
		left <- p.Close()
	}()
	next, err := Open(set, OpenOptions{Wait: 30 * time.Second})
	if err != nil {
		t.Fatalf("open while the holder leaves: %v", err)
	}
	if err := errors.Join(<-left, next.Close()); err != nil {
		t.Fatal(err)
	}
}
