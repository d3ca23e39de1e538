package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// piece is the bytes of one read while a prefix is summed.
const piece = 1 << 20

// partial is a file that is being received. It is named .NAME.partial and has its full size from the beginning; .NAME.state says how
// much of it is durable. The lock on it keeps a second receiver away.
//
// Order of durable steps while data arrive: 1 the bytes; 2 a new state; 3 its name. At the end: 1 the bytes and the mode; 2 the name of the file;
// 3 the partial file and its state go. A crash in between leaves a state that claims no more than is there, and after 2 perhaps a file with both names.
type partial struct {
	root    *os.Root
	name    string
	f       *os.File
	size    uint64
	written uint64    // bytes from the beginning on
	durable uint64    // of them
	every   uint64    // bytes after which more is made durable
	sum     hash.Hash // of the bytes written
	own     []byte    // what is summed and written, out of the peer's reach
	gone    bool      // the partial file has been given its name or was discarded
}

func (p *partial) file() string  { return "." + p.name + ".partial" }
func (p *partial) state() string { return "." + p.name + ".state" }

// checkName lets through what can only be the name of a visible file in the directory itself.
func checkName(name string) error {
	const most = 255 - len("..state.next")
	switch {
	case name == "":
		return refuse(reasonName, "the file has no name")
	case len(name) > most:
		return refuse(reasonName, "a name of %d bytes is too long: %d is the most", len(name), most)
	case strings.HasPrefix(name, "."):
		return refuse(reasonName, "the name %q begins with a dot: send it with --name", name)
	case strings.ContainsAny(name, "/\\") || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return refuse(reasonName, "the name %q has a slash, a control character or invalid UTF-8 in it: send it with --name", name)
	}
	return nil
}

// openPartial opens the partial file, or makes it, and takes its room on the disk. What was durable already is in p.durable, and summed; note says
// why an older one is not gone on with. alive is called now and then, while that takes long.
func openPartial(ctx context.Context, root *os.Root, name string, size, every uint64, alive func(context.Context) error) (p *partial, note string, err error) {
	if size > math.MaxInt64 {
		return nil, "", refuse(reasonNoSpace, "a file of %d bytes is too large for any file system", size)
	}
	p = &partial{root: root, name: name, size: size, every: every, sum: sha256.New()}
	if err := p.lock(); err != nil {
		return nil, "", err
	}
	st, err := p.loadState()
	if err != nil {
		note = fmt.Sprintf("%s is of no use (%v)", p.state(), err)
	}
	p.durable = st.durable
	if err := p.allocate(); err != nil {
		return nil, "", errors.Join(err, p.abandon())
	}
	if err := sumOf(ctx, p.sum, p.f, p.durable, alive); err != nil {
		return nil, "", errors.Join(err, p.f.Close())
	}
	p.written = p.durable
	if p.durable > 0 && [sumSize]byte(p.sum.Sum(nil)) != st.sum {
		note = fmt.Sprintf("the %d bytes of %s are not those that were received", p.durable, p.file())
	}
	if note != "" {
		err = p.restart()
	}
	if err != nil {
		return nil, "", errors.Join(err, p.f.Close())
	}
	return p, note, nil
}

// lock opens the file and takes the lock. A file with a second name is one that finish has given it before a crash: its bytes are not to be
// touched any more, so it goes, and another one takes its place.
func (p *partial) lock() error {
	links, err := p.open()
	if err == nil && links > 1 {
		if err := p.discard(); err != nil {
			return ioError(err)
		}
		p.gone = false
		links, err = p.open()
	}
	if err == nil && links > 1 {
		err = errors.Join(refuse(reasonIO, "%s has another name: remove it", p.file()), p.f.Close())
	}
	return err
}

// open opens and locks the file, and tells how many names it has. The name can have gone to another file before the lock was there.
func (p *partial) open() (links uint64, err error) {
	if p.f, err = p.root.OpenFile(p.file(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600); err != nil {
		return 0, ioError(err)
	}
	err = unix.Flock(int(p.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	var mine, named fs.FileInfo
	if err == nil {
		mine, err = p.f.Stat()
	}
	if err == nil {
		named, err = p.root.Lstat(p.file())
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, named):
		err = refuse(reasonBusy, "%q is being received from someone else: try again later", p.name)
	case err == nil && !mine.Mode().IsRegular():
		err = refuse(reasonIO, "%s is not a regular file: move it away", p.file())
	case err != nil:
		err = ioError(err)
	default:
		links = uint64(mine.Sys().(*syscall.Stat_t).Nlink)
	}
	if err != nil {
		p.f.Close()
	}
	return links, err
}

// allocate takes the room of the whole file before the first byte of it is sent.
func (p *partial) allocate() error {
	var st unix.Stat_t
	var sfs unix.Statfs_t
	fd := int(p.f.Fd())
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &sfs)); err != nil {
		return ioError(err)
	}
	free, have := sfs.Bavail*uint64(sfs.Bsize), uint64(st.Blocks)*512
	if p.size > have && p.size-have > free {
		return p.noSpace(free, have)
	}
	if p.size > 0 {
		err := unix.Fallocate(fd, 0, 0, int64(p.size))
		switch {
		case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG):
			return p.noSpace(free, have)
		case err != nil && !errors.Is(err, unix.EOPNOTSUPP):
			return ioError(err)
		}
	}
	return ioError(p.f.Truncate(int64(p.size)))
}

func (p *partial) noSpace(free, have uint64) error {
	return refuse(reasonNoSpace, "%q has %d bytes, and the receiver's file system has room for %d: make room there, then send it again; nothing was written", p.name, p.size, free+have)
}

// abandon gives a file back whose room could not be had. What is durable of it stays.
func (p *partial) abandon() error {
	if p.durable == 0 {
		return p.discard()
	}
	return errors.Join(p.f.Truncate(int64(p.durable)), p.f.Close())
}

// discard removes everything.
func (p *partial) discard() error {
	p.gone = true
	return errors.Join(absent(p.root.Remove(p.state())), p.root.Remove(p.file()), p.syncDir(), p.f.Close())
}

// sumOf adds the first n bytes of f to h.
func sumOf(ctx context.Context, h hash.Hash, f io.ReaderAt, n uint64, alive func(context.Context) error) error {
	b := make([]byte, piece)
	for off := uint64(0); off < n; {
		k := min(n-off, piece)
		if _, err := f.ReadAt(b[:k], int64(off)); err != nil {
			return ioError(err)
		}
		h.Write(b[:k])
		off += k
		if err := alive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart forgets what is there. The state goes before the first byte is overwritten.
func (p *partial) restart() error {
	p.sum.Reset()
	p.written, p.durable = 0, 0
	return ioError(errors.Join(absent(p.root.Remove(p.state())), p.syncDir()))
}

// write appends b, which the peer may change meanwhile.
func (p *partial) write(b []byte) error {
	p.own = append(p.own[:0], b...)
	if _, err := p.f.WriteAt(p.own, int64(p.written)); err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return refuse(reasonNoSpace, "the receiver's file system is full after %d of %d bytes: make room there and send it again, which goes on where it stopped", p.written, p.size)
		}
		return ioError(err)
	}
	p.sum.Write(p.own)
	p.written += uint64(len(p.own))
	if p.written-p.durable >= p.every {
		return p.checkpoint()
	}
	return nil
}

// checkpoint makes durable what is written, and then says so in the state.
func (p *partial) checkpoint() error {
	if p.written == p.durable {
		return nil
	}
	if err := unix.Fdatasync(int(p.f.Fd())); err != nil {
		return ioError(err)
	}
	s := state{size: p.size, durable: p.written, sum: [sumSize]byte(p.sum.Sum(nil))}
	if err := p.saveState(s); err != nil {
		return ioError(err)
	}
	p.durable = p.written
	return nil
}

// finish gives the file its name, if it is the one that was sent.
func (p *partial) finish(want [sumSize]byte, mode fs.FileMode, overwrite bool) error {
	if p.written != p.size || [sumSize]byte(p.sum.Sum(nil)) != want {
		return errors.Join(refuse(reasonSum, "%d of %d bytes arrived with another SHA-256 than they were sent with: nothing is kept, send it again", p.written, p.size), p.discard())
	}
	if err := errors.Join(p.f.Chmod(mode&0o777), p.f.Sync()); err != nil {
		return ioError(err)
	}
	var err error
	if overwrite {
		err = p.root.Rename(p.file(), p.name)
	} else if err = p.root.Link(p.file(), p.name); err == nil { // unlike a rename it never replaces a file
		err = p.root.Remove(p.file())
	}
	if errors.Is(err, fs.ErrExist) {
		return refuseExisting(p.name)
	}
	p.gone = err == nil
	return ioError(errors.Join(err, p.syncDir(), absent(p.root.Remove(p.state())), p.syncDir()))
}

// close keeps what is there for the next time.
func (p *partial) close() error {
	return errors.Join(p.checkpoint(), p.f.Close())
}

func (p *partial) syncDir() error {
	d, err := p.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func refuseExisting(name string) error {
	return refuse(reasonExists, "the receiver has a file %q already: send it with --name, or start the receiver with --overwrite", name)
}

func ioError(err error) error {
	if err == nil {
		return nil
	}
	return refuse(reasonIO, "%v", err)
}

// absent is err, unless it says that a file is not there.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
