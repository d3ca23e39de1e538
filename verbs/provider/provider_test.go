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
