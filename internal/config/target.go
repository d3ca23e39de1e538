package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/BurntSushi/toml"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// Target is the configuration of a target daemon.
type Target struct {
	// Path is the file that the values came from.
	Path string
	// Listen is the address of the control connections. Default 127.0.0.1:7470.
	Listen string
	// Fabric is the address of the lanes (RDMA connections). Default 127.0.0.1:7471.
	Fabric string
	// PoolDir holds the pool set files; the name of a pool is the path of its file in here.
	PoolDir string
	// Socket is the unix socket of the administrator. Default /run/pmemfs/target.sock.
	Socket string
	// Durability is the least promise that a pool must make to be served. Default Media.
	Durability Durability
	// Platform is the platform file. Empty: the usual one, if it is there.
	Platform string
	// Bounce is the size in bytes of the bounce buffers of a pool that the RDMA device cannot have. Default 0: such a pool is refused.
	Bounce Bytes
	// Methods are the methods of persistency that sessions may use. Default: all.
	Methods wire.Methods
	RDMA
}

type targetFile struct {
	Listen     string
	Fabric     string
	PoolDir    string `toml:"pool_dir"`
	Socket     string
	Durability Durability
	Platform   string
	Bounce     Bytes
	Methods    []member
	Provider   *string
	Device     string
	GID        *int
	CRC        bool
}

// member of the list methods.
type member wire.Method

// UnmarshalText reads "gpspm", "apm" or "flush". The choice of a method, "auto", is no member of a list from which one is chosen.
func (m *member) UnmarshalText(text []byte) error {
	var method wire.Method
	if err := method.UnmarshalText(text); err != nil || method == 0 {
		return fmt.Errorf(`%q cannot be one of the methods: use "gpspm", "apm" or "flush", or leave the key out to allow all`, text)
	}
	*m = member(method)
	return nil
}

var targetKeys = schema{
	"listen": aString, "fabric": aString, "pool_dir": aString, "socket": aString, "durability": aString, "platform": aString, "bounce": aString, "methods": aList,
	"provider": aString, "device": aString, "gid": anInteger, "crc": aBool,
}

// DefaultTarget is what an empty file means.
func DefaultTarget() *Target {
	return &Target{
		Listen:     "127.0.0.1:" + ControlPort,
		Fabric:     "127.0.0.1:7471",
		Socket:     "/run/pmemfs/target.sock",
		Durability: Media,
		Methods:    wire.AllMethods,
		RDMA:       defaultRDMA,
	}
}

// LoadTarget reads the configuration of a target. Errors about its content are *Error, or several joined.
func LoadTarget(path string) (*Target, error) {
	text, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: write that file (packaging/target.toml shows one), or name another one with --config", err)
	}
	if err != nil {
		return nil, err
	}
	return parseTarget(path, text)
}

func parseTarget(path, text string) (*Target, error) {
	d := DefaultTarget()
	raw := targetFile{Listen: d.Listen, Fabric: d.Fabric, PoolDir: d.PoolDir, Socket: d.Socket, Durability: d.Durability}
	f, err := parse(path, text, targetKeys, &raw)
	if err != nil {
		return nil, err
	}
	methods := d.Methods
	if f.md.IsDefined("methods") {
		methods = 0
		for _, m := range raw.Methods {
			methods |= wire.MethodSet(wire.Method(m))
		}
		if methods == 0 {
			return nil, f.errorf(toml.Key{"methods"}, `names no method: write for example ["gpspm", "apm"], or leave the key out to allow all`)
		}
	}
	t := &Target{path, raw.Listen, raw.Fabric, raw.PoolDir, raw.Socket, raw.Durability, raw.Platform, raw.Bounce, methods, newRDMA(raw.Provider, raw.Device, raw.GID, raw.CRC)}
	if key, err := t.checkValues(f.md.IsDefined); err != nil {
		return nil, f.errorf(toml.Key{key}, "%v", err)
	}
	return t, nil
}

// checkValues checks the values for which given is true and names the key that is wrong.
func (t *Target) checkValues(given func(key ...string) bool) (key string, err error) {
	for _, a := range []struct{ key, addr string }{{"listen", t.Listen}, {"fabric", t.Fabric}} {
		if err := checkAddr(a.addr, true); err != nil && given(a.key) {
			return a.key, err
		}
	}
	if _, port, _ := net.SplitHostPort(t.Fabric); t.Listen == t.Fabric && port != "0" {
		return "fabric", fmt.Errorf("is the address of listen, %s: control connections and lanes need a port each", t.Listen)
	}
	for _, p := range []struct{ key, path string }{{"pool_dir", t.PoolDir}, {"socket", t.Socket}} {
		if p.path == "" && given(p.key) {
			return p.key, fmt.Errorf("is empty: give a path, or leave the key out")
		}
	}
	if err := checkBounce(t.Bounce); err != nil {
		return "bounce", err
	}
	return t.RDMA.check()
}

// Validate reports what is missing or wrong after flags were laid over the file. It looks whether PoolDir is there.
func (t *Target) Validate() error {
	if t.PoolDir == "" {
		return &Error{Path: t.Path, Key: "pool_dir", Msg: "is missing: name the directory of the pool set files in the configuration file, or with --pool-dir"}
	}
	if key, err := t.checkValues(func(...string) bool { return true }); err != nil {
		return &Error{Key: key, Msg: err.Error()}
	}
	fi, err := os.Stat(t.PoolDir)
	if err != nil {
		return &Error{Path: t.Path, Key: "pool_dir", Msg: err.Error() + ": make the directory and put the pool set files there"}
	}
	if !fi.IsDir() {
		return &Error{Path: t.Path, Key: "pool_dir", Msg: t.PoolDir + " is not a directory"}
	}
	return nil
}
