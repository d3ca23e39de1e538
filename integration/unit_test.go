package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// TestUnit: what make install installs is a unit that systemd takes, and it starts the binary that was installed.
func TestUnit(t *testing.T) {
	t.Parallel()
	needs(t, "systemd", "systemd-analyze")
	dir := t.TempDir()
	prefix := filepath.Join(dir, "usr")
	if _, err := stage.RunIn("..", "make", "install", "PREFIX="+prefix, "SBIN="+filepath.Join(dir, "sbin")); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(prefix, "lib/systemd/system/pmemfs-target.service")
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nExecStart=" + prefix + "/bin/pmemfs-target\n"; !strings.Contains(string(text), want) {
		t.Errorf("the unit has no %q:\n%s", want, text)
	}
	out, err := stage.Run("systemd-analyze", "verify", unit)
	if err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify: %v, %s", err, out)
	}
}
