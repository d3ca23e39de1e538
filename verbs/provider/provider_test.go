package provider

import (
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	d, err := Open(Options{Name: IWARP, GID: AnyGID})
	if err != nil {
		t.Fatal(err)
	}
	if d.Name() != IWARP {
		t.Errorf("name %q", d.Name())
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(Options{Name: "roce"}); err == nil || !strings.Contains(err.Error(), IWARP) || !strings.Contains(err.Error(), IBVerbs) {
		t.Errorf("unknown provider: %v", err)
	}
}

// A device that is not there: the message names a way out, on a machine with RDMA devices and on one without, in a build with
// the provider and in one without.
func TestOpen_NoDevice(t *testing.T) {
	_, err := Open(Options{Name: IBVerbs, Device: "no-such-device", GID: AnyGID})
	if err == nil {
		t.Fatal("no error")
	}
	for _, way := range []string{IWARP, "name one of"} {
		if strings.Contains(err.Error(), way) {
			return
		}
	}
	t.Error(err)
}
