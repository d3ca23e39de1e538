package fs

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// clientMain is a program that uses a mount: "append FILE ID COUNT", "storm FILE COUNT", "trylock FILE CMD",
// "copy FROM TO UID".
func clientMain(command string) {
	args := strings.Fields(command)
	count, err := strconv.Atoi(args[len(args)-1])
	if err == nil {
		switch args[0] {
		case "append":
			err = appendRecords(args[1], args[2], count)
		case "storm":
			err = writeUnderSignals(args[1], count)
		case "trylock":
			err = tryLock(args[1], count)
		case "copy":
			err = copyAs(args[1], args[2], count)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

const recordLen = 96

func record(id string, i int) string {
	return fmt.Sprintf("%-*s\n", recordLen-1, id+":"+strconv.Itoa(i))
}

func appendRecords(file, id string, count int) error {
	fd, err := syscall.Open(file, syscall.O_WRONLY|syscall.O_APPEND|syscall.O_CREAT, 0644)
	if err != nil {
		return err
	}
	for i := range count {
		if n, err := syscall.Write(fd, []byte(record(id, i))); err != nil || n != recordLen {
			return fmt.Errorf("record %d: wrote %d: %v", i, n, err)
		}
	}
	return syscall.Close(fd)
}

// writeUnderSignals writes and syncs on a thread that gets one signal after the other.
func writeUnderSignals(file string, count int) error {
	fd, err := syscall.Open(file, syscall.O_WRONLY|syscall.O_CREAT, 0644)
	if err != nil {
		return err
	}
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Tgkill(os.Getpid(), thread, unix.SIGUSR1)
				time.Sleep(100 * time.Microsecond)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	data := make([]byte, 64<<10)
	for i := range count {
		if n, err := syscall.Pwrite(fd, data, 0); err != nil || n != len(data) {
			return fmt.Errorf("write %d: %d, %v", i, n, err)
		}
		if err := syscall.Fsync(fd); err != nil {
			return fmt.Errorf("fsync %d: %v", i, err)
		}
	}
	return syscall.Close(fd)
}

// tryLock takes a write lock with fcntl command cmd.
func tryLock(file string, cmd int) error {
	fd, err := syscall.Open(file, syscall.O_RDWR, 0)
	if err != nil {
		return err
	}
	return syscall.FcntlFlock(uintptr(fd), cmd, &syscall.Flock_t{Type: syscall.F_WRLCK})
}

// copyAs copies a file over another one as a user.
func copyAs(from, to string, uid int) error {
	if err := syscall.Setuid(uid); err != nil {
		return err
	}
	in, err := syscall.Open(from, syscall.O_RDONLY, 0)
	if err != nil {
		return err
	}
	out, err := syscall.Open(to, syscall.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for {
		if n, err := unix.CopyFileRange(in, nil, out, nil, 1<<20, 0); err != nil || n == 0 {
			return err
		}
	}
}

// client starts clientMain in a process of its own.
func client(args ...any) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clientEnv+"="+strings.TrimSuffix(fmt.Sprintln(args...), "\n"),
		"GORACE=atexit_sleep_ms=0") // else each one waits a second at its end
	cmd.Stderr = os.Stderr
	return cmd
}

const nobody = 65534

// shell runs a script in dir as the user uid and returns its output.
func shell(t *testing.T, uid uint32, dir, script string) (string, error) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustShell(t *testing.T, uid uint32, dir, script string) string {
	t.Helper()
	out, err := shell(t, uid, dir, script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}
