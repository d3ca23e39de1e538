package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// state is the content of .NAME.state, little-endian:
//
//	0  magic "SNDS" u32
//	4  version u32
//	8  size of the whole file u64
//	16 durable bytes of the partial file u64
//	24 SHA-256 of them
//	56 zero u32
//	60 CRC-32C of the 60 bytes before it u32
type state struct {
	size    uint64
	durable uint64
	sum     [sumSize]byte
}

const (
	stateMagic   = 'S' | 'N'<<8 | 'D'<<16 | 'S'<<24
	stateVersion = 1
	stateSize    = 64
)

func (s *state) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, stateSize)
	b = le.AppendUint32(b, stateMagic)
	b = le.AppendUint32(b, stateVersion)
	b = le.AppendUint64(b, s.size)
	b = le.AppendUint64(b, s.durable)
	b = append(b, s.sum[:]...)
	b = le.AppendUint32(b, 0)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (s *state) decode(b []byte) error {
	le := binary.LittleEndian
	switch {
	case len(b) != stateSize || le.Uint32(b) != stateMagic || le.Uint32(b[56:]) != 0 || crc32.Checksum(b[:60], castagnoli) != le.Uint32(b[60:]):
		return errors.New("it is damaged")
	case le.Uint32(b[4:]) != stateVersion:
		return fmt.Errorf("it has version %d, this is version %d", le.Uint32(b[4:]), stateVersion)
	}
	s.size, s.durable = le.Uint64(b[8:]), le.Uint64(b[16:])
	copy(s.sum[:], b[24:])
	return nil
}

// loadState takes the state of an earlier try. If there is none, s.durable is 0; an error says why there is one that is of no use.
func (p *partial) loadState() (s state, err error) {
	f, err := p.root.OpenFile(p.state(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, stateSize+1))
	if err == nil {
		err = s.decode(b)
	}
	if err != nil {
		return state{}, err
	}
	fi, err := p.f.Stat()
	switch {
	case err != nil:
		return state{}, err
	case s.size != p.size:
		return state{}, fmt.Errorf("it is that of a file of %d bytes, %d are offered", s.size, p.size)
	case s.durable > s.size || s.durable > uint64(fi.Size()):
		return state{}, fmt.Errorf("it claims %d bytes of a file of %d", s.durable, fi.Size())
	}
	return s, nil
}

// saveState replaces the state. It is durable when saveState returns.
func (p *partial) saveState(s state) error {
	next := p.state() + ".next"
	f, err := p.root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(s.encode())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(p.root.Rename(next, p.state()), p.syncDir())
}
