package mountinfo

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestResolve(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"real/sub", "mount"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"abs": filepath.Join(root, "real"), "rel": "real", "real/up": "../real/sub", "tomount": "mount", "mount/inside": "../real", "loop": "loop", "dangling": "gone",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	isMount := func(dir string) (bool, error) { return dir == filepath.Join(root, "mount"), nil }
	for _, c := range []struct{ path, want string }{
		{"real/sub", "real/sub"},
		{"abs/sub", "real/sub"},
		{"rel/up", "real/sub"},
		{"tomount", "mount"},
		{"tomount/inside/x", "mount/inside/x"}, // the mount is not entered
		{"dangling/x", "gone/x"},
		{"none/at/all", "none/at/all"},
	} {
		got, err := resolve(filepath.Join(root, c.path), isMount)
		if want := filepath.Join(root, c.want); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", c.path, got, err, want)
		}
	}
	if _, err := resolve(filepath.Join(root, "loop"), isMount); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("loop: got %v, want ELOOP", err)
	}
	if got, err := resolve("/", isMount); got != "/" || err != nil {
		t.Errorf("/: got %s, %v", got, err)
	}
}
