package iwarp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stream is a socket whose reads and writes go through readv and writev on the nonblocking descriptor, with the Go poller
// to wait on. One goroutine at a time reads; one at a time writes.
type stream struct {
	// file is a descriptor of the connection. Unlike a net.Conn it reports a deadline without making an error on the heap, and here
	// a deadline is how a reader is woken.
	file *os.File
	raw  syscall.RawConn
	peer net.Addr
	in   input
	out  output

	limit time.Time // the read deadline that the reader set last; interrupt replaces it without saying so here
}

// input is the read in progress.
type input struct {
	iov  [2]unix.Iovec
	n    int // iovecs in use
	into *mr // region that iov[0] lies in, nil if none
	got  int
	err  error
	fn   func(fd uintptr) bool
}

// output is the write in progress.
type output struct {
	iov  []unix.Iovec // what is left
	done int          // iovecs that were written in full
	wait bool         // wait for room instead of giving up
	err  error
	fn   func(fd uintptr) bool
}

// newStream takes over conn, which is a TCP connection or, in tests, another kind of stream socket. It closes conn only if it
// succeeds.
func newStream(conn net.Conn, o *Options) (*stream, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("iwarp: %T has no descriptor", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("iwarp: descriptor of %v: %w", conn.RemoteAddr(), err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tune(tcp, raw, o); err != nil {
			return nil, err
		}
	}
	s := &stream{peer: conn.RemoteAddr()}
	s.in.fn = s.in.step
	s.out.fn = s.out.step
	if s.file, err = duplicate(raw); err != nil {
		return nil, fmt.Errorf("iwarp: descriptor of %v: %w", s.peer, err)
	}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("iwarp: descriptor of %v: %w", s.peer, err), s.file.Close())
	}
	_ = conn.Close() // the connection lives on in file
	return s, nil
}

// duplicate makes a file of the connection. It shares the nonblocking mode, so the Go poller takes it.
func duplicate(raw syscall.RawConn) (*os.File, error) {
	var (
		dup int
		e   error
	)
	err := raw.Control(func(fd uintptr) { dup, e = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), "iwarp")
	if err := f.SetDeadline(time.Time{}); err != nil { // the poller has no room for it
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// tune bounds how long a dead peer stays unnoticed. The kernel gives up on bytes that were not acknowledged after
// WriteTimeout, and probes an idle connection so that it ends at about the same age.
func tune(tcp *net.TCPConn, raw syscall.RawConn, o *Options) error {
	if err := tcp.SetNoDelay(true); err != nil {
		return fmt.Errorf("iwarp: TCP_NODELAY: %w", err)
	}
	ka := net.KeepAliveConfig{Enable: true, Idle: max(time.Second, o.WriteTimeout/2), Interval: time.Second, Count: 5}
	if err := tcp.SetKeepAliveConfig(ka); err != nil {
		return fmt.Errorf("iwarp: TCP keepalive: %w", err)
	}
	var e error
	err := raw.Control(func(fd uintptr) {
		e = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(o.WriteTimeout/time.Millisecond))
	})
	if err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("iwarp: TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// expire sets the read deadline; the zero time lifts it. Only the reader calls it. What interrupt was called for must be
// looked at after this, not before: a deadline in the past may just have been replaced.
func (s *stream) expire(t time.Time) {
	s.limit = t
	_ = s.file.SetReadDeadline(t) // fails only if closed, and then the read does too
}

// interrupt makes the read under way, or else the next one, end with os.ErrDeadlineExceeded.
func (s *stream) interrupt() {
	_ = s.file.SetReadDeadline(time.Unix(1, 0)) // as above
}

// read reads at least one byte. dst, which may be empty, is filled first and lies in region into; what comes behind it
// goes into buf. If the region is deregistered meanwhile the answer is errGone, and a memory fault is EFAULT.
func (s *stream) read(dst []byte, into *mr, buf []byte) (int, error) {
	in := &s.in
	in.n, in.into, in.got, in.err = 0, into, 0, nil
	for _, b := range [2][]byte{dst, buf} {
		if len(b) > 0 {
			in.iov[in.n] = vec(b)
			in.n++
		}
	}
	err := s.raw.Read(in.fn)
	clear(in.iov[:]) // keep no memory alive
	if err == nil {
		err = in.err
	}
	return in.got, err
}

// step tries to read and says whether it is over. It keeps the region in use only while the system call runs, so a peer
// that stalls inside a frame does not hold up Deregister.
func (in *input) step(fd uintptr) bool {
	for {
		n, e := in.once(fd)
		switch {
		case in.err != nil:
			return true
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return false
		case e != 0:
			in.err = e
		case n == 0:
			in.err = io.EOF
		}
		in.got = n
		return true
	}
}

func (in *input) once(fd uintptr) (int, unix.Errno) {
	if in.into != nil {
		if !in.into.acquire() {
			in.err = errGone
			return 0, 0
		}
		defer in.into.release()
	}
	n, e := readv(fd, in.iov[:in.n])
	afterRead()
	if e != 0 {
		n = 0
	}
	return n, e
}

// write sends as much of iov as the socket takes; with wait it first waits for room if there is none. It returns the number of
// iovecs that were sent in full and what is left.
func (s *stream) write(iov []unix.Iovec, wait bool) (done int, rest []unix.Iovec, err error) {
	out := &s.out
	out.iov, out.done, out.wait, out.err = iov, 0, wait, nil
	err = s.raw.Write(out.fn)
	if err == nil {
		err = out.err
	}
	rest, out.iov = out.iov, nil
	return out.done, rest, err
}

// step writes until all is sent, an error, or a full socket.
func (out *output) step(fd uintptr) bool {
	for len(out.iov) > 0 {
		beforeWrite()
		n, e := writev(fd, out.iov[:min(len(out.iov), maxIovecs)])
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return !out.wait
		case e != 0:
			out.err = e
			return true
		}
		out.wait = false // progress: the caller sets a new deadline before it waits again
		out.take(n)
	}
	return true
}

// take removes n sent bytes from the front.
func (out *output) take(n int) {
	for n > 0 {
		v := &out.iov[0]
		if uint64(n) < uint64(v.Len) {
			advance(v, n)
			return
		}
		n -= int(v.Len)
		*v = unix.Iovec{}
		out.iov = out.iov[1:]
		out.done++
	}
}

// maxIovecs is UIO_MAXIOV, the most that one writev takes.
const maxIovecs = 1024

// closeWrite ends our half of the connection: the peer reads an end of file behind what was sent.
func (s *stream) closeWrite() {
	_ = s.raw.Control(func(fd uintptr) { // the connection is given up; a failure means that it is gone already
		_ = unix.Shutdown(int(fd), unix.SHUT_WR)
	})
}
