package initiator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// Load reads a configuration and the pool set that it names. A pool set file in place of a configuration means the
// defaults. Both are told apart by the first line.
func Load(path string) (*config.Mount, *poolset.Set, error) {
	isSet, err := startsWithPoolSet(path)
	if err != nil {
		return nil, nil, err
	}
	cfg := config.DefaultMount()
	if isSet {
		cfg.Path, cfg.Pool = path, path
	} else if cfg, err = config.LoadMount(path); err != nil {
		return nil, nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	set, err := poolset.ParseFile(cfg.Pool)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s: pool = %q: %w: write that pool set file, or correct the path", cfg.Path, cfg.Pool, err)
	}
	if err != nil {
		return nil, nil, err
	}
	return cfg, set, checkTargets(cfg, set)
}

func startsWithPoolSet(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a fifo must not block
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("configuration: %w: give the path of a configuration (packaging/pmemfs.toml shows one) or of a pool set file", err)
	}
	if err != nil {
		return false, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return false, errors.Join(err, fmt.Errorf("configuration: %s is not a regular file: give the path of a configuration or a pool set file", path))
	}
	const first = "PMEMPOOLSET"
	line, _ := bufio.NewReader(io.LimitReader(f, int64(len(first)+len("\r\n")))).ReadString('\n') // a file without a whole line is no pool set
	return strings.TrimRight(line, "\r\n") == first, nil
}

// maxTargets is how many copies a state slot can name.
const maxTargets = wire.MaxPeers

// The pipeline takes them all, with the local copy.
var _ [commit.MaxCopies - 1 - maxTargets]struct{}

// checkTargets refuses a table that no REPLICA line uses, and two replicas with the same address and name.
func checkTargets(cfg *config.Mount, set *poolset.Set) error {
	if len(set.Replicas) > maxTargets {
		return fmt.Errorf("%s names %d replicas; a pool can have %d", set.File, len(set.Replicas), maxTargets)
	}
	used, seen := map[string]bool{}, map[string]bool{}
	for _, remote := range set.Replicas {
		used[hostKey(remote)] = true
		key := cfg.Target(hostKey(remote)).Address + " " + remote.Name
		if seen[key] {
			return fmt.Errorf("%s, line %d: names the same replica a second time", set.File, remote.Line)
		}
		seen[key] = true
	}
	for _, host := range cfg.Targets() {
		if !used[host] {
			return fmt.Errorf("%s: [target.%q] is used by no REPLICA line of %s: correct one of the two", cfg.Path, host, set.File)
		}
	}
	return nil
}

// hostKey is the host of a REPLICA line as the table names it: with the port if one is given there.
func hostKey(r poolset.Replica) string {
	if r.Port == 0 {
		return r.Host
	}
	return net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
}
