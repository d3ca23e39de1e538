package config

import (
	"maps"
	"slices"

	"github.com/BurntSushi/toml"
)

// inboundPersistent is the one value of the key inbound.
const inboundPersistent = "persistent"

// Platform is what an administrator declares of a machine, and no program can find out.
type Platform struct {
	// Path is the file that the values came from.
	Path string
	// EADR: what is in the CPU caches when the power fails reaches the persistent memory.
	EADR bool
	// Inbound are the RDMA devices, sorted, whose inbound writes bypass the CPU caches (on Intel processors: DDIO is off for the PCIe port).
	Inbound []string
}

type platformFile struct {
	EADR bool `toml:"eadr"`
	Port map[string]struct{ Inbound string }
}

var platformKeys = schema{"eadr": aBool, "port.*.inbound": aString}

// LoadPlatform reads a platform file. Errors about its content are *Error, or several joined.
func LoadPlatform(path string) (*Platform, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parsePlatform(path, text)
}

func parsePlatform(path, text string) (*Platform, error) {
	var raw platformFile
	f, err := parse(path, text, platformKeys, &raw)
	if err != nil {
		return nil, err
	}
	p := &Platform{Path: path, EADR: raw.EADR, Inbound: slices.Sorted(maps.Keys(raw.Port))}
	for _, device := range p.Inbound {
		key := toml.Key{"port", device, "inbound"}
		switch inbound := raw.Port[device].Inbound; {
		case !f.md.IsDefined(key...):
			return nil, f.errorf(key[:2], `says nothing of the port: write inbound = %q, or leave the table out`, inboundPersistent)
		case inbound != inboundPersistent:
			return nil, f.errorf(key, `%q is not known: use %q, or leave the table out`, inbound, inboundPersistent)
		}
	}
	return p, nil
}
