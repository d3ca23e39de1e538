package fs

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs/volume"
)

const (
	enospc     = fuse.Status(syscall.ENOSPC)
	enotty     = fuse.Status(syscall.ENOTTY)
	eopnotsupp = fuse.Status(syscall.EOPNOTSUPP)
)

// maxCheckpoints bounds the retries of a change that found no space: nodes replaced in one epoch are free one flip later,
// so a third checkpoint frees nothing that the second did not.
const maxCheckpoints = 2

// status maps an error of the volume to what the kernel is told. Only a bare syscall.Errno is a POSIX condition; one that is
// wrapped belongs to some lower layer and means nothing to the program that made the request.
func (s *Server) status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	if errno, ok := err.(syscall.Errno); ok && errno != syscall.EINTR {
		return fuse.Status(errno)
	}
	switch {
	case errors.Is(err, volume.ErrStopped):
		return fuse.EROFS
	case errors.Is(err, volume.ErrShort):
		return enospc
	}
	s.log.error("request failed with EIO", err)
	return fuse.EIO
}

// durability maps an error of a drain: whatever the cause, the bytes are not known to be durable.
func (s *Server) durability(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	s.log.error("not durable, answered EIO", err)
	return fuse.EIO
}

// change runs op, and runs it again after a checkpoint if the volume is short of space. No lock is held while the checkpoint
// waits. op must have changed nothing when it returns ErrShort.
func (s *Server) change(op func() error) error {
	for tries := 0; ; tries++ {
		err := op()
		if tries == maxCheckpoints || !errors.Is(err, volume.ErrShort) {
			return err
		}
		if err := s.commit.Checkpoint(); err != nil {
			return err
		}
	}
}

// limitedLog writes at most one line per logInterval and says how many it left out: every write of a program can fail.
type limitedLog struct {
	to      logrus.FieldLogger
	next    atomic.Int64 // time of the next line, nanoseconds since 1970
	skipped atomic.Int64
}

const logInterval = 10 * time.Second

func (l *limitedLog) error(what string, err error) {
	now, next := time.Now().UnixNano(), l.next.Load()
	if now < next || !l.next.CompareAndSwap(next, now+int64(logInterval)) {
		l.skipped.Add(1)
		return
	}
	l.to.WithError(err).WithField("skipped", l.skipped.Swap(0)).Error("fs: " + what)
}

// Write takes a line of go-fuse's own log.
func (l *limitedLog) Write(line []byte) (int, error) {
	l.to.Warn("go-fuse: " + strings.TrimRight(string(line), "\n"))
	return len(line), nil
}
