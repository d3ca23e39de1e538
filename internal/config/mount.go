package config

import (
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// ControlPort is the port of a target's control connection where nothing else is said.
const ControlPort = "7470"

// onLossError is the one loss policy: wait up to Timeout for a lost target, then fail fsync until the pool is mounted anew.
const onLossError = "error"

// Mount is the configuration of an initiator.
type Mount struct {
	// Path is the file that the values came from.
	Path string
	// Pool is the pool set file.
	Pool string
	// Durability is the least promise that every copy must make. Default Media.
	Durability Durability
	// Timeout is how long a lost target may take to come back before fsync fails. Default 5 s; 0: at once.
	Timeout time.Duration
	// CommitInterval is how long a change may stay uncommitted when nobody asks for it. Default 5 s, never 0.
	CommitInterval time.Duration
	// Platform is the platform file. Empty: the usual one, if it is there.
	Platform string
	// Bounce is the size in bytes of the bounce buffers for a pool that the RDMA device cannot have. Default 0: such a pool is refused.
	Bounce Bytes

	targets map[string]Replica
}

// Replica is how to reach one target.
type Replica struct {
	Address string // control connection, "host:port"; default HOST:7470
	RDMA
	Durability Durability  // least promise asked of this target. Default: that of the mount
	Method     wire.Method // of persistency. Default 0: the target chooses
}

type mountFile struct {
	Pool           string
	Durability     Durability
	Timeout        duration
	CommitInterval duration `toml:"commit_interval"`
	OnLoss         string   `toml:"on_loss"`
	Platform       string
	Bounce         Bytes
	Target         map[string]replicaFile
}

type replicaFile struct {
	Address    string
	Provider   *string
	Device     string
	GID        *int
	CRC        bool
	Durability Durability
	Method     wire.Method
}

var mountKeys = schema{
	"pool": aString, "durability": aString, "timeout": aString, "commit_interval": aString, "on_loss": aString, "platform": aString, "bounce": aString,
	"target.*.address": aString, "target.*.provider": aString, "target.*.device": aString, "target.*.gid": anInteger, "target.*.crc": aBool, "target.*.durability": aString, "target.*.method": aString,
}

// DefaultMount is what an empty file means.
func DefaultMount() *Mount {
	return &Mount{Durability: Media, Timeout: 5 * time.Second, CommitInterval: 5 * time.Second}
}

// LoadMount reads the configuration of an initiator. Errors about its content are *Error, or several joined.
func LoadMount(path string) (*Mount, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parseMount(path, text)
}

func parseMount(path, text string) (*Mount, error) {
	m := DefaultMount()
	m.Path = path
	raw := mountFile{Durability: m.Durability, Timeout: duration(m.Timeout), CommitInterval: duration(m.CommitInterval), OnLoss: onLossError}
	f, err := parse(path, text, mountKeys, &raw)
	if err != nil {
		return nil, err
	}
	if err := raw.check(f); err != nil {
		return nil, err
	}
	m.Pool, m.Durability = raw.Pool, raw.Durability
	m.Timeout, m.CommitInterval = time.Duration(raw.Timeout), time.Duration(raw.CommitInterval)
	m.Platform, m.Bounce = raw.Platform, raw.Bounce
	m.targets = make(map[string]Replica, len(raw.Target))
	for host, r := range raw.Target {
		m.targets[host] = Replica{r.Address, r.rdma(), r.Durability, r.Method}
	}
	return m, nil
}

func (raw *mountFile) check(f *file) error {
	if f.md.IsDefined("pool") && raw.Pool == "" {
		return f.errorf(toml.Key{"pool"}, "is empty: name the pool set file")
	}
	if raw.CommitInterval == 0 {
		return f.errorf(toml.Key{"commit_interval"}, `is zero, so that nothing but fsync would ever commit: write for example "5s"`)
	}
	if err := checkBounce(raw.Bounce); err != nil {
		return f.errorf(toml.Key{"bounce"}, "%v", err)
	}
	switch raw.OnLoss {
	case onLossError:
	case "degrade":
		return f.errorf(toml.Key{"on_loss"}, `"degrade" is not available: going on without a target is safe only with a witness, `+
			`because the target may be promoted at the same time; use "error"`)
	default:
		return f.errorf(toml.Key{"on_loss"}, `%q is not known: use "error"`, raw.OnLoss)
	}
	for _, host := range slices.Sorted(maps.Keys(raw.Target)) {
		if err := raw.Target[host].check(f, host); err != nil {
			return err
		}
	}
	return nil
}

func (r replicaFile) check(f *file, host string) error {
	table := toml.Key{"target", host}
	if host == "" || strings.HasPrefix(host, ":") {
		return f.errorf(table, `names no host: write [target."HOST"] with HOST as in the REPLICA line of the pool set`)
	}
	if _, port, err := net.SplitHostPort(host); err == nil {
		if err := checkAddr(host, false); err != nil || port == "" {
			return f.errorf(table, `%q has a bad port: write [target."HOST"] or [target."HOST:PORT"]`, host)
		}
	}
	if f.md.IsDefined("target", host, "address") {
		if err := checkAddr(r.Address, false); err != nil {
			return f.errorf(append(table, "address"), "%v", err)
		}
	}
	if key, err := r.rdma().check(); err != nil {
		return f.errorf(append(table, key), "%v", err)
	}
	return nil
}

func (r replicaFile) rdma() RDMA { return newRDMA(r.Provider, r.Device, r.GID, r.CRC) }

// Validate reports what the file does not give and no default can.
func (m *Mount) Validate() error {
	if m.Pool == "" {
		return &Error{Path: m.Path, Key: "pool", Msg: `is missing: write for example pool = "/etc/pmemfs/data.set"`}
	}
	return nil
}

// Targets are the hosts for which the file has a table, sorted.
func (m *Mount) Targets() []string { return slices.Sorted(maps.Keys(m.targets)) }

// Target is how to reach host, named as in a REPLICA line of a pool set, from its table or by default.
func (m *Mount) Target(host string) Replica {
	r, ok := m.targets[host]
	if !ok {
		r.RDMA = defaultRDMA
	}
	if r.Address == "" {
		r.Address = controlAddr(host)
	}
	if r.Durability == 0 {
		r.Durability = m.Durability
	}
	return r
}

// controlAddr is host itself if it has a port, else host with the usual port.
func controlAddr(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), ControlPort)
}
