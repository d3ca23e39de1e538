// Demo is the main job of pmemfs, end to end on one machine: a mounted pool, a target on loopback, ordinary programs that write,
// a kill -9 in the middle, and all that was acknowledged read back from the promoted replica.
//
// It must run as root. It installs what is missing, and removes what it installed of pmemfs itself. It exits 0 only if every check held.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	sabotage := flag.String("sabotage", "", "build in a deliberate fault, which the demo must notice: drain")
	keep := flag.Bool("keep", false, "keep the directory with pools and logs")
	flag.Parse()
	if err := demo(*sabotage, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("\nEvery acknowledged byte was there. The demo passed.")
}

func demo(sabotage string, keep bool) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("run it as root: it mounts file systems and installs packages")
	}
	dir, err := os.MkdirTemp("/var/tmp", "pmemfs-demo-")
	if err != nil {
		return err
	}
	s := &scene{runner: runner{start: time.Now()}, dir: dir, sabotage: sabotage}
	defer func() {
		s.cleanup()
		if !keep {
			os.RemoveAll(dir)
		}
	}()
	err = s.play()
	if err != nil {
		s.showLogs()
	}
	fmt.Printf("    total %64s %7.2f s\n", "", time.Since(s.start).Seconds())
	return err
}

// showLogs prints the end of every log, for whoever has to find out why the demo failed.
func (s *scene) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if err != nil || len(b) == 0 {
			continue
		}
		if len(b) > 2000 {
			b = b[len(b)-2000:]
		}
		fmt.Printf("--- %s\n%s\n", filepath.Base(path), b)
	}
}
