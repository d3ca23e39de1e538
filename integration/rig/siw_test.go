package rig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSettingsOfSiw(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("siw_main.c", "const bool zcopy_tx = true;\nconst bool mpa_crc_required;\nconst bool mpa_crc_strict;\nu_char mpa_version = MPA_REVISION_2;\nconst bool peer_to_peer;\n")
	write("siw.h", "extern const bool zcopy_tx;\nextern const bool mpa_crc_required;\nextern const bool mpa_crc_strict;\nextern const bool peer_to_peer;\n")
	if err := settingsOfSiw(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "siw_main.c"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\nmodule_param("); n != 4 {
		t.Errorf("%d parameters:\n%s", n, text)
	}
	header, err := os.ReadFile(filepath.Join(dir, "siw.h"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(header), "const"); n != 1 {
		t.Errorf("%d constants are left:\n%s", n, header)
	}
	if err := settingsOfSiw(dir); err == nil {
		t.Error("another source was taken")
	}
}
