package scale

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/initiator"
	"github.com/pmemfs/pmemfs/internal/pool"
)

// syncEvery is how many files are made between two commits.
const syncEvery = 20_000

// Fill fills a pool that is not mounted and has no targets, and leaves it as a clean unmount does. Config is a configuration
// or pool set file.
func Fill(config string, p Plan) (err error) {
	cfg, set, err := initiator.Load(config)
	if err != nil {
		return err
	}
	if len(set.Replicas) > 0 {
		return fmt.Errorf("%s has targets, which would not get the files", config)
	}
	po, err := pool.Open(set, pool.OpenOptions{Role: "mount", Durability: pool.Durability(cfg.Durability)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, po.Close()) }()
	a, err := initiator.Attach(po, config, nil, now, random)
	if err != nil {
		return err
	}
	c := commit.New(commit.Config{Volume: a.Volume(), Region: po.Region(), Interval: time.Minute, Seq: a.Seq()})
	f := filler{vol: a.Volume(), commit: c, plan: p, dirs: map[string]volume.Ino{".": volume.Root}, block: make([]byte, 4096)}
	if err := errors.Join(f.run(), c.Close()); err != nil {
		return err
	}
	return a.MarkClean()
}

type filler struct {
	vol    *volume.Volume
	commit *commit.Committer
	plan   Plan
	dirs   map[string]volume.Ino
	block  []byte
}

func (f *filler) run() error {
	for i := range f.plan.Files {
		if err := f.file(i); err != nil {
			return fmt.Errorf("file %d: %w", i, err)
		}
		if i%syncEvery == 0 {
			if err := f.commit.SyncAll(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *filler) file(i int) error {
	dir, err := f.dir(f.plan.Dir(i))
	if err != nil {
		return err
	}
	ino, err := f.make(dir, f.plan.name(i), syscall.S_IFREG|0o644)
	if err != nil || i%f.plan.DataEvery != 0 {
		return err
	}
	binary.LittleEndian.PutUint64(f.block, uint64(i))
	return f.retry(func() error {
		_, err := f.vol.Write(ino, 0, f.block, false)
		return err
	})
}

// dir finds or makes a directory and those above it.
func (f *filler) dir(name string) (volume.Ino, error) {
	if ino, ok := f.dirs[name]; ok {
		return ino, nil
	}
	up, err := f.dir(path.Dir(name))
	if err != nil {
		return 0, err
	}
	ino, err := f.make(up, path.Base(name), syscall.S_IFDIR|0o755)
	f.dirs[name] = ino
	return ino, err
}

func (f *filler) make(dir volume.Ino, name string, mode uint32) (volume.Ino, error) {
	var a volume.Attr
	err := f.retry(func() (err error) {
		a, err = f.vol.Make(dir, name, volume.Make{Mode: mode})
		return err
	})
	return a.Ino, err
}

// retry does what the caller of a volume does on ErrShort.
func (f *filler) retry(op func() error) error {
	err := op()
	for n := 0; n < 2 && errors.Is(err, volume.ErrShort); n++ {
		if err := f.commit.Checkpoint(); err != nil {
			return err
		}
		err = op()
	}
	return err
}

func now() volume.Time {
	t := time.Now()
	return volume.Time{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(binary.LittleEndian.Uint64(b[:]), 1)
}
