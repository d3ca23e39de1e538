// Sendfile copies files to another machine over RDMA: messages by Send and Recv, data by one-sided WRITEs in chunks, with a
// window of them in flight. A transfer that was broken goes on where it stopped, and a file gets its name only when its SHA-256 is
// that of the source and its bytes are durable. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/provider"
)

type deviceFlags struct {
	Provider string `default:"iwarp" enum:"iwarp,ibverbs" help:"iwarp: over TCP, without a device; ibverbs: an RDMA device of the kernel."`
	Device   string `help:"Name of the RDMA device; by default the one that leads to the address."`
	GID      int    `name:"gid" default:"-1" help:"Index of the local GID; -1: choose."`
}

func (d *deviceFlags) open(addr string) (verbs.Device, error) {
	return provider.Open(provider.Options{Name: d.Provider, Device: d.Device, GID: d.GID, Addr: addr})
}

type sendCmd struct {
	deviceFlags
	Addr    string        `arg:"" help:"host:port of the receiver."`
	Files   []string      `arg:"" type:"existingfile" help:"Files to send."`
	Name    string        `help:"Name of the one file at the receiver, if not its own."`
	Timeout time.Duration `default:"30s" help:"How long the receiver may be silent."`
	Retry   time.Duration `default:"10s" help:"How long to try again after the last progress, when the connection is lost."`
}

func (c *sendCmd) Run(ctx context.Context) (err error) {
	switch {
	case c.Timeout <= 0:
		return errors.New("--timeout must be positive")
	case c.Name != "" && len(c.Files) > 1:
		return errors.New("--name is for one file")
	}
	dev, err := c.open(c.Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	_, notATerminal := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	s := &sender{dev: dev, addr: c.Addr, limit: c.Timeout, retry: c.Retry, show: func(name string, size uint64) *progress {
		return &progress{out: os.Stderr, terminal: notATerminal == nil, name: name, size: size}
	}}
	for _, path := range c.Files {
		if err := s.send(ctx, path, cmp.Or(c.Name, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}

type receiveCmd struct {
	deviceFlags
	Listen    string        `default:"127.0.0.1:7480" help:"host:port to listen on. There is no authentication: whoever reaches it can leave files."`
	Dir       string        `default:"." type:"existingdir" help:"Where the files go."`
	Overwrite bool          `help:"Replace files that are there."`
	Once      bool          `help:"End after one file has arrived or was refused."`
	SyncEvery uint64        `default:"64" help:"MiB after which what has arrived is made durable, so that a crash of this machine costs no more."`
	Timeout   time.Duration `default:"30s" help:"How long a sender may be silent."`
}

func (c *receiveCmd) Run(ctx context.Context) (err error) {
	if c.Timeout <= 0 || c.SyncEvery == 0 || c.SyncEvery > 1<<40 {
		return errors.New("--timeout and --sync-every must be positive, and no more than can be")
	}
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	dev, err := c.open(c.Listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	listener, err := dev.Listen(c.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	fmt.Printf("listening on %v\n", listener.Addr())
	r := &receiver{dev: dev, root: root, overwrite: c.Overwrite, every: c.SyncEvery << 20, limit: c.Timeout, log: func(format string, a ...any) {
		fmt.Fprintf(os.Stderr, format+"\n", a...)
	}}
	return r.serve(ctx, listener, c.Once)
}

type cli struct {
	Send    sendCmd    `cmd:"" help:"Send files."`
	Receive receiveCmd `cmd:"" help:"Receive files."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	k := kong.Parse(&cli{}, kong.Description("Copy files to another machine over RDMA."), kong.BindTo(ctx, (*context.Context)(nil)))
	if err := k.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "sendfile:", err)
		os.Exit(1)
	}
}
