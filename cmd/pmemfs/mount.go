package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs"
	"github.com/pmemfs/pmemfs/internal/initiator"
	"github.com/pmemfs/pmemfs/internal/mountinfo"
)

const (
	defaultConfig = "/etc/pmemfs/pmemfs.toml"
	defaultLog    = "/var/log/pmemfs.log"
	// statusFD tells a re-executed daemon where to report. Lines: "ok", "error TEXT", "progress TEXT".
	statusFD = "PMEMFS_STATUS_FD"
)

type mountCmd struct {
	Args       []string `arg:"" name:"path" help:"[CONFIG] MOUNTPOINT. CONFIG is a configuration or pool set file, by default /etc/pmemfs/pmemfs.toml."`
	Options    []string `short:"o" sep:"none" help:"Mount options as in fstab: ro (changes no byte of any copy; also for a replica), noatime, nosuid, sync, config=FILE, ..."`
	Foreground bool     `short:"f" help:"Stay in the foreground and log to stderr."`
	LogFile    string   `help:"Log of the daemon." default:"/var/log/pmemfs.log"`

	config, mountpoint string // absolute
}

// Run mounts in the background: it starts itself again as a daemon and returns when that says that the mount answers.
func (c *mountCmd) Run() error {
	opts, err := fs.ParseOptions(strings.Join(c.Options, ","))
	if err != nil {
		return &exitError{exitMountUsage, err}
	}
	if err := c.resolve(&opts); err != nil {
		return &exitError{exitMountUsage, err}
	}
	if fd := os.Getenv(statusFD); fd != "" {
		return c.daemon(opts, os.NewFile(3, "status"))
	}
	if c.Foreground {
		return c.serve(opts, stderrLog(), os.Stderr)
	}
	return c.background()
}

// resolve settles configuration file and mount point as absolute paths: a daemon has no working directory. The mount point is
// named as the kernel will list it, since the commands find the daemon by that name.
func (c *mountCmd) resolve(opts *fs.Options) (err error) {
	if len(c.Args) == 0 || len(c.Args) > 2 {
		return fmt.Errorf("want [CONFIG] MOUNTPOINT, got %d paths", len(c.Args))
	}
	var given []string
	for _, path := range append(c.Args[:len(c.Args)-1:len(c.Args)-1], opts.Config, opts.Pool) {
		if path != "" {
			given = append(given, path)
		}
	}
	switch len(given) {
	case 0:
		c.config = defaultConfig
	case 1:
		c.config = given[0]
	default:
		return fmt.Errorf("the pool is named more than once, by %s: leave all but one out", strings.Join(given, " and "))
	}
	if c.config, err = filepath.Abs(c.config); err != nil {
		return err
	}
	c.mountpoint, err = mountinfo.Resolve(c.Args[len(c.Args)-1])
	return err
}

// background starts the daemon in a session of its own and relays what it reports.
func (c *mountCmd) background() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	logFile, err := os.OpenFile(c.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return &exitError{exitMountFailed, fmt.Errorf("log file: %w; mounting needs root, and a log file that can be written (--log-file)", err)}
	}
	defer logFile.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	daemon := exec.Command(self, c.daemonArgs()...)
	daemon.Args[0] = "pmemfs"
	daemon.Dir = "/"
	daemon.Env = append(os.Environ(), statusFD+"=3")
	daemon.Stdout, daemon.Stderr = logFile, logFile
	daemon.ExtraFiles = []*os.File{w}
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = daemon.Start()
	w.Close()
	if err != nil {
		return err
	}
	return relay(r, c.LogFile)
}

// daemonArgs name the pool by its path alone: options that name it too would be taken for a second one.
func (c *mountCmd) daemonArgs() []string {
	args := []string{"mount", "--log-file", c.LogFile, c.config, c.mountpoint}
	for opt := range strings.SplitSeq(strings.Join(c.Options, ","), ",") {
		opt = strings.TrimSpace(opt)
		if opt != "" && !strings.HasPrefix(opt, "config=") && !strings.HasPrefix(opt, "pool=") {
			args = append(args, "-o", opt)
		}
	}
	return args
}

// relay prints the daemon's progress and returns when it says ok, reports an error, or ends.
func relay(r *os.File, logFile string) error {
	in := bufio.NewScanner(r)
	for in.Scan() {
		kind, text, _ := strings.Cut(in.Text(), " ")
		switch kind {
		case "ok":
			return nil
		case "error":
			return &exitError{exitMountFailed, errors.New(strings.ReplaceAll(text, "\x00", "\n"))}
		case "progress":
			fmt.Fprintln(os.Stderr, "pmemfs:", text)
		}
	}
	return &exitError{exitMountFailed, fmt.Errorf("the daemon ended before the mount answered; see %s", logFile)}
}

// daemon serves the mount in the background. Its error goes to whoever started it and to the log, which is stderr too, so that
// main has nothing to add.
func (c *mountCmd) daemon(opts fs.Options, status *os.File) error {
	syscall.CloseOnExec(int(status.Fd()))
	_ = os.Unsetenv(statusFD)
	err := c.serve(opts, fileLog(), status)
	if err != nil {
		fmt.Fprintln(status, "error", strings.ReplaceAll(err.Error(), "\n", "\x00"))
		logrus.Error(err)
		err = &exitError{exitMountFailed, errors.New("")}
	}
	status.Close()
	return err
}

// serve mounts, reports "ok", and returns when the file system has been unmounted and everything is on the copies. SIGTERM and
// SIGINT unmount; if files are open, a second one detaches the mount from them.
func (c *mountCmd) serve(opts fs.Options, log *logrus.Entry, status io.Writer) error {
	cfg, set, err := initiator.Load(c.config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	m, err := initiator.Mount(ctx, initiator.MountConfig{
		Config: cfg, Set: set, Mountpoint: c.mountpoint, Options: opts, Log: log,
		Progress: progressTo(status, stop),
	})
	if err != nil {
		return &exitError{exitMountFailed, advise(err, c.config)}
	}
	fmt.Fprintln(status, "ok")
	again := make(chan os.Signal, 2)
	signal.Notify(again, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(again)
	var following sync.WaitGroup
	following.Go(func() { m.UnmountOn(again) })
	err = m.Wait()
	following.Wait() // it ends with the mount
	return err
}

// progressTo tells status how far a mount has come, and gives it up when nobody listens any more: whoever interrupts mount(8) does not
// want the mount to appear minutes later.
func progressTo(status io.Writer, giveUp func()) func(text string) {
	return func(text string) {
		if _, err := fmt.Fprintln(status, "progress", text); err != nil {
			giveUp()
		}
	}
}

func stderrLog() *logrus.Entry {
	logrus.SetOutput(os.Stderr)
	return logrus.NewEntry(logrus.StandardLogger())
}

func fileLog() *logrus.Entry {
	logrus.SetFormatter(&logrus.TextFormatter{DisableColors: true, FullTimestamp: true})
	return stderrLog().WithField("pid", os.Getpid())
}
