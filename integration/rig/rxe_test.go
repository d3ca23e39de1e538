package rig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMendRxe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rxe_odp.c")
	if err := os.WriteFile(path, []byte("before\n"+pageCopy+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		mended, err := mendRxe(dir)
		if err != nil || mended != want {
			t.Fatalf("time %d: %v, %v", i, mended, err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"before\n", "user_va + offset;", "user_va + offset : addr;", "addr += bytes;", "after\n"} {
		if !strings.Contains(string(text), s) {
			t.Errorf("no %q in\n%s", s, text)
		}
	}
}
