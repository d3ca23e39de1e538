package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// settingsOfSiw turns the constants by which siw sets a connection up into module parameters with the same defaults, so that a job can change
// them in /sys/module/siw/parameters.
func settingsOfSiw(dir string) error {
	for _, e := range []struct{ file, old, new string }{
		{"siw_main.c", `^const bool (mpa_crc_required|mpa_crc_strict|peer_to_peer);`, "bool $1;\nmodule_param($1, bool, 0644);"},
		{"siw_main.c", `^u_char mpa_version = MPA_REVISION_2;`, "unsigned char mpa_version = MPA_REVISION_2;\nmodule_param(mpa_version, byte, 0644);"},
		{"siw.h", `^extern const bool (mpa_crc_required|mpa_crc_strict|peer_to_peer);`, "extern bool $1;"},
	} {
		path := filepath.Join(dir, e.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		re := regexp.MustCompile("(?m)" + e.old)
		if !re.Match(text) {
			return fmt.Errorf("%s has no line like %s: this siw is another one", path, e.old)
		}
		if err := os.WriteFile(path, re.ReplaceAll(text, []byte(e.new)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
