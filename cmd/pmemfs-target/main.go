// Pmemfs-target serves copies of pools to initiators.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"

	"github.com/alecthomas/kong"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/platform"
	"github.com/pmemfs/pmemfs/internal/version"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/target"
	"github.com/pmemfs/pmemfs/verbs/provider"
)

const description = `Serve the replicas of pools to the machines that mount them.

A pool is named by the path of its pool set file below the pool directory. The bytes of a pool are written by its initiator
over RDMA (an RDMA device, or iWARP over TCP); this program makes them durable on request and knows nothing of files. "pmemfs promote" takes
a pool away from its initiator so that it can be mounted here.

THERE IS NO AUTHENTICATION YET: whoever reaches the two ports can read and overwrite every pool. So they listen on the loopback
interface unless told otherwise; open them on a network that you trust only.

On SIGTERM and SIGINT the flushes under way are finished and the sessions closed. A second signal ends the program at once, which
loses nothing that was answered.`

type options struct {
	Config      string             `short:"c" placeholder:"FILE" help:"Configuration file, which alone can set methods and bounce. Default: ${config} if it exists."`
	Listen      *string            `placeholder:"HOST:PORT" help:"Address of the control connections. Default: 127.0.0.1:7470."`
	Fabric      *string            `placeholder:"HOST:PORT" help:"Address of the RDMA connections. Default: 127.0.0.1:7471."`
	PoolDir     *string            `placeholder:"DIR" help:"Directory of the pool set files. Required, here or in the configuration file."`
	Socket      *string            `placeholder:"PATH" help:"Unix socket for pmemfs promote and --status. Default: /run/pmemfs/target.sock."`
	Durability  *config.Durability `placeholder:"CLASS" help:"Least promise of a pool that is served: media (its bytes survive a power cut) or memory (the death of a process only). Default: media."`
	Platform    *string            `placeholder:"FILE" help:"Platform file: what becomes of bytes in CPU caches. Default: /etc/pmemfs/platform.toml if it exists."`
	Provider    *string            `placeholder:"NAME" help:"RDMA provider: iwarp (over TCP, needs no RDMA device) or ibverbs (an RDMA device). Default: iwarp."`
	Device      *string            `placeholder:"NAME" help:"RDMA device of ibverbs. Default: the one with the address of --fabric."`
	GID         *int               `name:"gid" placeholder:"INDEX" help:"Index of the local GID, for ibverbs on Ethernet. Default: chosen."`
	CRC         *bool              `negatable:"" help:"Ask for a checksum in every iWARP frame. Default: off."`
	CheckConfig bool               `help:"Check the configuration and the flags, print what they mean, and exit."`
	Status      bool               `help:"Ask the running daemon for the state of its pools, print it as JSON, and exit."`
	Verbose     bool               `short:"v" help:"Log also what is of interest to developers only."`
	Version     kong.VersionFlag   `short:"V" help:"Print the version and exit."`
}

const defaultConfig = "/etc/pmemfs/target.toml"

func main() {
	var o options
	kong.Parse(&o, kong.Name("pmemfs-target"), kong.Description(description),
		kong.Vars{"version": "pmemfs-target " + version.Version, "config": defaultConfig})
	if err := o.run(os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "pmemfs-target: %v\n", err)
		os.Exit(1)
	}
}

func (o *options) run(out io.Writer) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	if o.Status {
		return printStatus(cfg.Socket, out)
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	if o.CheckConfig {
		if _, err := platform.Load(cfg.Platform); err != nil {
			return err
		}
		printConfig(cfg, out)
		return nil
	}
	log := logrus.New()
	log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	if o.Verbose {
		log.SetLevel(logrus.DebugLevel)
	}
	return serve(cfg, log, out)
}

// printConfig prints cfg as a configuration file.
func printConfig(c *config.Target, out io.Writer) {
	var methods []string
	for m := wire.GPSPM; m <= wire.FLUSH; m++ {
		if c.Methods.Has(m) {
			methods = append(methods, strconv.Quote(strings.ToLower(m.String())))
		}
	}
	fmt.Fprintf(out, "listen = %q\nfabric = %q\npool_dir = %q\nsocket = %q\ndurability = %q\nmethods = [%s]\n",
		c.Listen, c.Fabric, c.PoolDir, c.Socket, c.Durability, strings.Join(methods, ", "))
	fmt.Fprintf(out, "platform = %q\nbounce = \"%d\"\nprovider = %q\ndevice = %q\ngid = %d\ncrc = %v\n",
		c.Platform, c.Bounce, c.Provider, c.Device, c.GID, c.CRC)
}

func printStatus(socket string, out io.Writer) error {
	st, err := target.StatusVia(socket)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(st)
}

// load lays the flags over the configuration file.
func (o *options) load() (*config.Target, error) {
	cfg, err := o.file()
	if err != nil {
		return nil, err
	}
	overlay(&cfg.Listen, o.Listen)
	overlay(&cfg.Fabric, o.Fabric)
	overlay(&cfg.PoolDir, o.PoolDir)
	overlay(&cfg.Socket, o.Socket)
	overlay(&cfg.Durability, o.Durability)
	overlay(&cfg.Platform, o.Platform)
	overlay(&cfg.Provider, o.Provider)
	overlay(&cfg.Device, o.Device)
	overlay(&cfg.GID, o.GID)
	overlay(&cfg.CRC, o.CRC)
	return cfg, nil
}

func overlay[T any](value, flag *T) {
	if flag != nil {
		*value = *flag
	}
}

// file reads the configuration file. Only the usual one may be absent, and only if none was named.
func (o *options) file() (*config.Target, error) {
	if o.Config != "" {
		return config.LoadTarget(o.Config)
	}
	cfg, err := config.LoadTarget(defaultConfig)
	if errors.Is(err, os.ErrNotExist) {
		return config.DefaultTarget(), nil
	}
	return cfg, err
}

// serve runs the target until a signal ends it.
func serve(cfg *config.Target, log *logrus.Logger, out io.Writer) (err error) {
	ctx, stop := onSignal(log)
	defer stop()
	device, err := provider.Open(cfg.Options(cfg.Fabric))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	s, err := target.Listen(cfg, device, log)
	if err != nil {
		return err
	}
	// The kernel takes connections from here on; Run answers them.
	fmt.Fprintf(out, "listening on %v, fabric %v, pools in %s\n", s.Addr(), s.FabricAddr(), cfg.PoolDir)
	if err := notifyReady(); err != nil {
		log.Warnf("notify the service manager: %v", err)
	}
	return s.Run(ctx)
}

// onSignal returns a context that the first signal ends. A second one ends the process. Call stop when neither matters any more.
func onSignal(log *logrus.Logger) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case s := <-signals:
				if n > 1 {
					log.Warnf("%v again: ending at once", s)
					os.Exit(1)
				}
				log.Infof("%v: finishing the flushes under way and closing the sessions", s)
				cancel()
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		wg.Wait()
		cancel()
	}
}
