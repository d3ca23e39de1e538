package initiator

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A path that is no configuration at all, such as that of a pool or of a device, is refused without being read whole.
func TestLoad_NotAConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.pool")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 256<<20); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := Load(path)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "not a configuration file") {
		t.Errorf("a pool as configuration: %v", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d bytes were allocated to refuse it", used)
	}
}
