package main

import (
	"bufio"
	"errors"
	"os"

	"github.com/pmemfs/pmemfs/fs/inspect"
	"github.com/pmemfs/pmemfs/internal/initiator"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

type dumpCmd struct {
	Config string  `arg:"" help:"Configuration or pool set file of a pool that is not mounted; also that of a replica."`
	Header bool    `help:"Only the header and the state slots; these options can be combined."`
	Super  bool    `help:"Only the super slots."`
	Log    bool    `help:"Only the records of the log that a mount would replay, with their operations."`
	Node   uint64  `placeholder:"OFF" help:"Only the tree node at this pool offset, with its keys and values."`
	Inode  *uint64 `placeholder:"INO" help:"Only the keys and values of this inode; 0: the orphans."`
}

// Run writes the structure of a pool; without options all of it. Nodes and inodes are those of the last checkpoint.
func (c *dumpCmd) Run() error {
	_, set, err := initiator.Load(c.Config)
	if err != nil {
		return err
	}
	p, err := initiator.OpenPrivate(set, "dump", true)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	d := &inspect.Dumper{Bytes: p.Region().Bytes(), UUID: p.Header().PoolUUID, Out: out}
	fault := pmem.Guard(func() { err = c.dump(d) })
	return errors.Join(flush(out, errors.Join(err, fault)), p.Close())
}

func (c *dumpCmd) dump(d *inspect.Dumper) (err error) {
	all := !c.Header && !c.Super && !c.Log && c.Node == 0 && c.Inode == nil
	for _, part := range []struct {
		wanted bool
		write  func() error
	}{
		{all || c.Header, d.Header},
		{all || c.Super, d.Supers},
		{all || c.Log, d.Log},
		{all || c.Node != 0, func() error { return d.Nodes(c.Node) }},
		{c.Inode != nil, func() error { return d.Inode(*c.Inode) }},
	} {
		if part.wanted {
			err = errors.Join(err, part.write())
		}
	}
	return err
}
