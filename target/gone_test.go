package target

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
)

// pulled is a device whose listeners find it gone once the channel is closed.
type pulled struct {
	verbs.Device
	gone chan struct{}
}

type pulledListener struct {
	verbs.Listener
	gone chan struct{}
}

func (d *pulled) Listen(addr string) (verbs.Listener, error) {
	l, err := d.Device.Listen(addr)
	return &pulledListener{l, d.gone}, err
}

func (l *pulledListener) Accept() (verbs.ConnRequest, error) {
	<-l.gone
	return nil, fmt.Errorf("pulled: %w", verbs.ErrDeviceGone)
}

// TestRun_DeviceGone: the daemon ends with an error that says what to do, rather than serve nobody.
func TestRun_DeviceGone(t *testing.T) {
	dev := &pulled{iwarp.New(iwarp.Options{}), make(chan struct{})}
	dir := t.TempDir()
	cfg := config.DefaultTarget()
	cfg.Listen, cfg.Fabric, cfg.PoolDir, cfg.Socket = "127.0.0.1:0", "127.0.0.1:0", dir, filepath.Join(dir, "s")
	s, err := Listen(cfg, dev, quiet())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	select {
	case err := <-ended:
		t.Fatalf("ended with its device there: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(dev.gone)
	select {
	case err := <-ended:
		if !errors.Is(err, verbs.ErrDeviceGone) || !strings.Contains(err.Error(), "start pmemfs-target again") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if err := dev.Close(); err != nil {
		t.Errorf("something of the device is left open: %v", err)
	}
}
