package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pmemfs/pmemfs/internal/poolset"
	"golang.org/x/sys/unix"
)

// InUseError: another process has the pool.
type InUseError struct {
	File  string // pool set
	PID   int    // 0 if the lock file does not tell
	Role  string
	Dying bool // the lock is free, but the process that had it still exists
}

func (e *InUseError) Error() string {
	switch {
	case e.PID == 0:
		return fmt.Sprintf("pool %s is in use by another process: stop it first", e.File)
	case e.Dying:
		return fmt.Sprintf("pool %s: process %d (%s) has not finished dying: wait for it, or find out what it waits for (ps, dmesg)",
			e.File, e.PID, e.Role)
	}
	return fmt.Sprintf("pool %s is in use by process %d (%s): unmount or stop it first", e.File, e.PID, e.Role)
}

// DefaultWait is how long Open, Create and Remove wait for a dying process if their options do not say.
const DefaultWait = 5 * time.Second

// lock is a held lock file.
type lock struct {
	f    *os.File
	made bool // the lock file was not there before
}

// acquireFile takes one lock of a pool and waits up to wait until an earlier holder is gone for good.
//
// Order: 1 flock; 2 the recorded process gone; 3 own record written. Only after 3 may a part be opened.
func acquireFile(set *poolset.Set, path, role string, wait time.Duration) (*lock, error) {
	me, err := self(role)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", set.File, err)
	}
	l, err := patientFlock(set, path, wait)
	if err != nil {
		return nil, err
	}
	if err := takeOver(l.f, set, me, wait); err != nil {
		l.f.Close()
		return nil, err
	}
	return l, nil
}

// lockGrace is how long a held lock may take to come free: whoever saw the daemon of a pool end may open the pool at once,
// and must not lose against what the kernel still has to tidy up.
const lockGrace = time.Second

// patientFlock is flock with more tries while the pool is in use: for lockGrace, and up to wait while the holder is leaving.
func patientFlock(set *poolset.Set, path string, wait time.Duration) (*lock, error) {
	for begin := time.Now(); ; time.Sleep(pollStep) {
		l, err := flock(set, path)
		var inUse *InUseError
		if err == nil || !errors.As(err, &inUse) {
			return l, err
		}
		limit := lockGrace
		if inUse.Role == roleLeaving {
			limit = max(limit, wait)
		}
		if time.Since(begin) > limit {
			return nil, err
		}
	}
}

// roleLeaving is the role of a process that is about to close the pool.
const roleLeaving = "leaving"

func (l *lock) leave() error {
	h, err := self(roleLeaving)
	if err != nil {
		return err
	}
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err = l.f.WriteAt(h.encode(), 0)
	return err
}

// flock opens and locks the lock file. Remove unlinks the file under the lock, so the lock counts only
// if the name still leads to the locked file.
func flock(set *poolset.Set, path string) (*lock, error) {
	const tries = 100
	for range tries {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		made := err == nil
		if errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, os.O_RDWR, 0)
		}
		if errors.Is(err, fs.ErrNotExist) && dirExists(path) {
			continue // removed between the two
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("pool %s: there is no directory %s: make it first, or correct the path of the part: %w", set.File, filepath.Dir(path), err)
		}
		if err != nil {
			return nil, fmt.Errorf("pool %s: lock: %w", set.File, err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, path) {
			return &lock{f, made}, nil
		}
		holder, _ := readHolder(f)
		f.Close()
		switch {
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, &InUseError{File: set.File, PID: holder.PID, Role: holder.Role}
		default:
			return nil, fmt.Errorf("pool %s: lock %s: %w", set.File, path, err)
		}
	}
	return nil, fmt.Errorf("pool %s: lock %s: the file was replaced %d times", set.File, path, tries)
}

func dirExists(path string) bool {
	_, err := os.Stat(filepath.Dir(path))
	return err == nil
}

func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// takeOver waits for the last holder and records this process in its place.
func takeOver(f *os.File, set *poolset.Set, me Holder, wait time.Duration) error {
	old, ok := readHolder(f)
	// A record of this very process is one that a failed release left behind: the lock is free.
	if ok && (old.PID != me.PID || old.start != me.start) {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		if err := waitHolder(ctx, set, old); err != nil {
			return err
		}
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("pool %s: lock: %w", set.File, err)
	}
	if _, err := f.WriteAt(me.encode(), 0); err != nil {
		return fmt.Errorf("pool %s: lock: %w", set.File, err)
	}
	return nil
}

func waitHolder(ctx context.Context, set *poolset.Set, h Holder) error {
	err := h.waitGone(ctx)
	if err != nil && ctx.Err() != nil {
		return errors.Join(&InUseError{File: set.File, PID: h.PID, Role: h.Role, Dying: true}, err)
	}
	if err != nil {
		return fmt.Errorf("pool %s: wait for process %d (%s): %w", set.File, h.PID, h.Role, err)
	}
	return nil
}

// readHolder reads the record in a lock file.
func readHolder(f *os.File) (Holder, bool) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 512))
	if err != nil {
		return Holder{}, false
	}
	return decodeHolder(text)
}

// WaitGone returns when no process holds the pool, without taking the lock itself; an *InUseError joined with the error
// of ctx says who still has it. It serves a caller who has killed the holder, or knows that it will end.
func WaitGone(ctx context.Context, set *poolset.Set) error {
	h, ok, err := holderOf(set)
	if err != nil || !ok {
		return err
	}
	if h.PID == os.Getpid() {
		return &InUseError{File: set.File, PID: h.PID, Role: h.Role}
	}
	return waitHolder(ctx, set, h)
}

func (l *lock) release() error {
	return errors.Join(l.f.Truncate(0), l.f.Close())
}

func (l *lock) abandon() error {
	if l.made {
		return l.remove()
	}
	return l.release()
}

func (l *lock) remove() error {
	return errors.Join(os.Remove(l.f.Name()), l.f.Close())
}
