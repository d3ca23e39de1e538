package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// serveLocks opens a file and obeys a line at a time from its standard input: "try", "wait", "share" and "free", for locks of one
// kind on the whole file. It answers "ok", "busy", or what went wrong.
func serveLocks(file, kind string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	lock, ok := map[string]func(int, string) error{
		"flock": flock,
		"posix": func(fd int, what string) error { return fcntl(fd, what, unix.F_SETLK, unix.F_SETLKW) },
		"ofd":   func(fd int, what string) error { return fcntl(fd, what, unix.F_OFD_SETLK, unix.F_OFD_SETLKW) },
	}[kind]
	if !ok {
		return fmt.Errorf("unknown kind of lock %q", kind)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch err := lock(int(f.Fd()), in.Text()); {
		case err == nil:
			fmt.Println("ok")
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EACCES):
			fmt.Println("busy")
		default:
			fmt.Println(err)
		}
	}
	return in.Err()
}

func flock(fd int, what string) error {
	how, ok := map[string]int{"try": unix.LOCK_EX | unix.LOCK_NB, "wait": unix.LOCK_EX, "share": unix.LOCK_SH | unix.LOCK_NB,
		"free": unix.LOCK_UN}[what]
	if !ok {
		return errors.New("unknown command")
	}
	return unix.Flock(fd, how)
}

func fcntl(fd int, what string, set, setWait int) error {
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	switch what {
	case "try":
	case "wait":
		set = setWait
	case "share":
		l.Type = syscall.F_RDLCK
	case "free":
		l.Type = syscall.F_UNLCK
	default:
		return errors.New("unknown command")
	}
	return syscall.FcntlFlock(uintptr(fd), set, &l)
}
