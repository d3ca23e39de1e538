// Demo is the main job of pmemfs, end to end on one machine: a mounted pool, a target on loopback, ordinary programs that write,
// a kill -9 in the middle, and all that was acknowledged read back from the promoted replica.
//
// It must run as root. It installs what is missing, and removes what it installed of pmemfs itself. It exits 0 only if every check held.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
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
		return errors.New("run it as root: it mounts file systems and installs packages")
	}
	dir, err := os.MkdirTemp("/var/tmp", "pmemfs-demo-")
	if err != nil {
		return err
	}
	s := &scene{
		Stage:    &stage.Stage{Dir: dir, Durability: "media", PoolSize: "256M"},
		runner:   runner{start: time.Now()},
		sabotage: sabotage,
	}
	defer func() {
		s.Close()
		if keep {
			fmt.Println("kept", dir)
			return
		}
		os.RemoveAll(dir)
	}()
	if err = s.play(); err != nil {
		fmt.Print("\n", s.Logs())
	}
	fmt.Printf("    %-66s %7.2f s\n", "total", time.Since(s.start).Seconds())
	return err
}
