package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// program builds sendfile once for all tests.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sendfile-test-")
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "sendfile"), stage.Build("../..", dir, "github.com/pmemfs/pmemfs/examples/sendfile")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, _ := program(); file != "" {
		os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

func built(t *testing.T) string {
	t.Helper()
	file, err := program()
	check(t, err)
	return file
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process is a receiver in a process of its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	log  lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startReceiver starts one that leaves files in dir. listen is "127.0.0.1:0" or the address of one that has ended.
func startReceiver(t *testing.T, dir, listen string, flags ...string) *process {
	t.Helper()
	p := &process{t: t}
	p.cmd = exec.Command(built(t), append([]string{"receive", "--listen", listen, "--dir", dir, "--timeout", "5s"}, flags...)...)
	p.cmd.Stderr = &p.log
	out, err := p.cmd.StdoutPipe()
	check(t, err)
	check(t, p.cmd.Start())
	t.Cleanup(p.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the receiver did not start: %v, %s", err, p.log.String())
	}
	p.addr = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	return p
}

// stop ends it, and demands that it ends well.
func (p *process) stop() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("receiver: %v, %s", err, p.log.String())
	}
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// send runs a sender to its end.
func send(t *testing.T, addr, file string, flags ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command(built(t), append([]string{"send", "--timeout", "5s", addr, file}, flags...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// source makes a file of random bytes.
func source(t *testing.T, name string, size int) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	content = make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)})
	rnd.Read(content)
	check(t, os.WriteFile(path, content, 0o640))
	return path, content
}

// same demands that dir holds the file with content, and nothing else.
func same(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%s: %v, or other content than was sent", name, err)
	}
	if names := list(t, dir); len(names) != 1 {
		t.Errorf("the directory holds %q", names)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSend(t *testing.T) {
	for _, size := range []int{0, 1, slotSize, 3*slotSize*slots + 12345} {
		dir := t.TempDir()
		p := startReceiver(t, dir, "127.0.0.1:0")
		path, content := source(t, "some file", size)
		out, err := send(t, p.addr, path)
		if err != nil {
			t.Fatalf("%d bytes: %v, %s, %s", size, err, out, p.log.String())
		}
		if !strings.Contains(out, "100 %") {
			t.Errorf("the sender says %q", out)
		}
		same(t, dir, "some file", content)
		if fi, err := os.Stat(filepath.Join(dir, "some file")); err != nil || fi.Mode() != 0o640 {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
		out, err = send(t, p.addr, path)
		if err == nil || !strings.Contains(out, "already") || !strings.Contains(out, "--overwrite") {
			t.Errorf("sent twice: %v, %s", err, out)
		}
		p.stop()
		p = startReceiver(t, dir, "127.0.0.1:0", "--overwrite", "--once")
		check(t, os.WriteFile(path, []byte("newer"), 0o600))
		if out, err = send(t, p.addr, path); err != nil {
			t.Errorf("to --overwrite: %v, %s", err, out)
		}
		same(t, dir, "some file", []byte("newer"))
		p.stop()
	}
}

// waitForState waits until the receiver says that something of the file is durable.
func waitForState(t *testing.T, dir, name string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "."+name+".state")); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the receiver makes nothing durable")
		}
	}
}

const large = 48 << 20

// TestReceiverKilled: the sender goes on by itself with the next receiver, behind what the first one had made durable.
func TestReceiverKilled(t *testing.T) {
	dir := t.TempDir()
	p := startReceiver(t, dir, "127.0.0.1:0", "--sync-every", "1")
	path, content := source(t, "f", large)
	sender := exec.Command(built(t), "send", "--retry", "20s", p.addr, path)
	var out lockedBuffer
	sender.Stderr = &out
	check(t, sender.Start())
	waitForState(t, dir, "f")
	p.kill()
	if names := list(t, dir); len(names) < 2 || names[0] != ".f.partial" {
		t.Fatalf("after the kill the directory holds %q", names)
	}
	p = startReceiver(t, dir, p.addr)
	if err := sender.Wait(); err != nil {
		t.Fatalf("%v, %s, %s", err, out.String(), p.log.String())
	}
	if !strings.Contains(out.String(), "trying again") || !strings.Contains(out.String(), "already, and they are the same") {
		t.Errorf("the sender says %q", out.String())
	}
	same(t, dir, "f", content)
}

// TestSenderKilled: the receiver keeps what it has, and the next sender goes on.
func TestSenderKilled(t *testing.T) {
	dir := t.TempDir()
	p := startReceiver(t, dir, "127.0.0.1:0", "--sync-every", "1")
	path, content := source(t, "f", large)
	sender := exec.Command(built(t), "send", p.addr, path)
	check(t, sender.Start())
	waitForState(t, dir, "f")
	sender.Process.Kill()
	sender.Wait()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(p.log.String(), "bytes are kept"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the receiver says %q", p.log.String())
		}
	}
	out, err := send(t, p.addr, path)
	if err != nil || !strings.Contains(out, "already, and they are the same") {
		t.Fatalf("%v, %s, %s", err, out, p.log.String())
	}
	same(t, dir, "f", content)
}

func TestShortDisk(t *testing.T) {
	dir := t.TempDir()
	check(t, syscall.Mount("sendfile", dir, "tmpfs", 0, "size=4m"))
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	p := startReceiver(t, dir, "127.0.0.1:0")
	path, _ := source(t, "f", 5<<20)
	out, err := send(t, p.addr, path)
	if err == nil {
		t.Fatal("5 MiB were sent to a file system of 4")
	}
	for _, part := range []string{"5242880 bytes", "has room for", "make room", "nothing was written"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q lacks %q", out, part)
		}
	}
	if names := list(t, dir); len(names) != 0 {
		t.Errorf("the directory holds %q", names)
	}
	path, content := source(t, "g", 3<<20)
	if out, err := send(t, p.addr, path); err != nil {
		t.Errorf("3 MiB: %v, %s", err, out)
	}
	same(t, dir, "g", content)
	p.stop()
}

// interrupted leaves 3 of 5 MiB of a file in a new directory, as a receiver does whose sender went away.
func interrupted(t *testing.T, content []byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.OpenRoot(dir)
	check(t, err)
	defer root.Close()
	p, note, err := openPartial(t.Context(), root, "f", uint64(len(content)), 1<<20, nil)
	if err != nil || note != "" {
		t.Fatal(note, err)
	}
	check(t, p.write(content[:1<<20]))
	check(t, p.write(content[1<<20:3<<20]))
	check(t, p.close())
	return dir
}

// TestResume goes on with what an earlier try has left behind, unless it is not what it should be.
func TestResume(t *testing.T) {
	path, content := source(t, "f", 5<<20)
	change := func(file string, off int64, b ...byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
			check(t, err)
			_, err = f.WriteAt(b, off)
			check(t, err)
			check(t, f.Close())
		}
	}
	forged := func(s state) func(*testing.T, string) { return change(".f.state", 0, s.encode()...) }
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		sender string // what the sender says
		says   string // what the receiver says
	}{
		{"whole", func(*testing.T, string) {}, "3145728 bytes already, and they are the same", "3145728 of them were here already"},
		{"state of no bytes", func(t *testing.T, dir string) { check(t, os.Truncate(filepath.Join(dir, ".f.state"), 0)) }, "", "begins anew: .f.state is of no use (it is damaged)"},
		{"state with a flipped bit", change(".f.state", 17, 0xff), "", "it is damaged"},
		{"state that is longer", change(".f.state", stateSize, 0), "", "it is damaged"},
		{"state of another version", func(t *testing.T, dir string) {
			b := (&state{size: 5 << 20, durable: 3 << 20}).encode()
			b[4] = 9
			change(".f.state", 0, resum(b)...)(t, dir)
		}, "", "it has version 9"},
		{"state of another size", forged(state{size: 6 << 20, durable: 3 << 20}), "", "a file of 6291456 bytes, 5242880 are offered"},
		{"state that claims too much", forged(state{size: 5 << 20, durable: 5<<20 + 1}), "", "it claims 5242881 bytes"},
		{"state with another sum", forged(state{size: 5 << 20, durable: 2 << 20}), "", "the 2097152 bytes of .f.partial are not those that were received"},
		{"partial file changed", change(".f.partial", 12345, ^content[12345]), "", "are not those that were received"},
		{"partial file shortened", func(t *testing.T, dir string) { check(t, os.Truncate(filepath.Join(dir, ".f.partial"), 1<<20)) }, "", "it claims 3145728 bytes of a file of 1048576"},
		{"partial file gone", func(t *testing.T, dir string) { check(t, os.Remove(filepath.Join(dir, ".f.partial"))) }, "", "of a file of 0"},
		{"state gone", func(t *testing.T, dir string) { check(t, os.Remove(filepath.Join(dir, ".f.state"))) }, "", "0 of them were here already"},
		{"state a link to elsewhere", func(t *testing.T, dir string) {
			check(t, os.Remove(filepath.Join(dir, ".f.state")))
			check(t, os.Symlink("/etc/passwd", filepath.Join(dir, ".f.state")))
		}, "", "is of no use"},
		{"source changed", func(t *testing.T, dir string) { interruptedWith(t, dir, content) }, "are not those of the file: beginning anew", "the sender has other content than the 3145728 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := interrupted(t, content)
			c.damage(t, dir)
			p := startReceiver(t, dir, "127.0.0.1:0")
			out, err := send(t, p.addr, path)
			if err != nil || !strings.Contains(out, c.sender) {
				t.Fatalf("%v; the sender says %q, want %q", err, out, c.sender)
			}
			p.stop()
			if !strings.Contains(p.log.String(), c.says) {
				t.Errorf("the receiver says %q, want %q", p.log.String(), c.says)
			}
			same(t, dir, "f", content)
		})
	}
}

// interruptedWith replaces what is in dir by the same of another file.
func interruptedWith(t *testing.T, dir string, content []byte) {
	other := bytes.Clone(content)
	other[99]++
	from := interrupted(t, other)
	for _, file := range []string{".f.partial", ".f.state"} {
		check(t, os.Rename(filepath.Join(from, file), filepath.Join(dir, file)))
	}
}

// TestResume_NoRoom: when the rest of a file does not fit any more, what has arrived stays.
func TestResume_NoRoom(t *testing.T) {
	path, content := source(t, "f", 5<<20)
	dir := t.TempDir()
	check(t, syscall.Mount("sendfile", dir, "tmpfs", 0, "size=8m"))
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	from := interrupted(t, content)
	for _, file := range []string{".f.partial", ".f.state"} {
		b, err := os.ReadFile(filepath.Join(from, file))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, file), b[:min(len(b), 3<<20)], 0o600))
	}
	check(t, os.WriteFile(filepath.Join(dir, "other"), make([]byte, 4<<20), 0o600))
	p := startReceiver(t, dir, "127.0.0.1:0")
	if out, err := send(t, p.addr, path); err == nil || !strings.Contains(out, "has room for") {
		t.Errorf("%v, %s", err, out)
	}
	check(t, os.Remove(filepath.Join(dir, "other")))
	if out, err := send(t, p.addr, path); err != nil || !strings.Contains(out, "3145728 bytes already") {
		t.Errorf("%v, %s", err, out)
	}
	same(t, dir, "f", content)
	p.stop()
}

func TestSend_NoReceiver(t *testing.T) {
	path, _ := source(t, "f", 100)
	out, err := send(t, "127.0.0.1:1", path, "--retry", "0s")
	if fmt.Sprint(err) != "exit status 1" || !strings.Contains(out, "refused") || !strings.Contains(out, "run the same command again") {
		t.Errorf("%v, %s", err, out)
	}
}

// TestSend_NoFile: what is no regular file is refused at once, also a FIFO without a writer.
func TestSend_NoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	check(t, syscall.Mkfifo(fifo, 0o600))
	for _, path := range []string{fifo, os.DevNull} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		out, err := exec.CommandContext(ctx, built(t), "send", "127.0.0.1:1", path).CombinedOutput()
		cancel()
		if fmt.Sprint(err) != "exit status 1" || !strings.Contains(string(out), "is not a regular file") {
			t.Errorf("%s: %v, %s", path, err, out)
		}
	}
}
