package initiator

import (
	"context"
	"io"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// Attached is a mount up to step 7, without FUSE, sockets and goroutines: for simulations.
type Attached struct{ m Mounted }

// Attach does the steps from 1 to 7 on a pool that is open, with replicas that are connected. Name stands for the pool in messages.
func Attach(p *pool.Pool, name string, replicas []Replica, now func() volume.Time, generation func() uint64) (*Attached, error) {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	a := &Attached{Mounted{
		MountConfig: MountConfig{Set: &poolset.Set{File: name}, Config: &config.Mount{}, Log: logrus.NewEntry(quiet), Progress: func(string) {}},
		pool:        p, now: now, generation: generation,
	}}
	for _, r := range replicas {
		a.m.links = append(a.m.links, &link{replica: r})
	}
	if err := a.m.examine(); err != nil {
		return nil, err
	}
	return a, a.m.attach(context.Background())
}

// Volume is the recovered volume; Found is what it was recovered to; Seq is the last job that every copy has.
func (a *Attached) Volume() *volume.Volume  { return a.m.vol }
func (a *Attached) Found() volume.Recovered { return a.m.found }
func (a *Attached) Seq() uint64             { return a.m.seq }

// MarkClean is steps 2 and 3 of an unmount.
func (a *Attached) MarkClean() error { return a.m.markClean() }
