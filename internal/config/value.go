package config

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// Durability is the promise that a copy must make before a byte counts as durable on it. The numbers are those of the wire.
type Durability uint32

const (
	// Memory: bytes survive the death of the process, not of the machine.
	Memory Durability = 1
	// Media: bytes survive a power cut.
	Media Durability = 2
)

func (d Durability) String() string {
	switch d {
	case Memory:
		return "memory"
	case Media:
		return "media"
	}
	return fmt.Sprintf("durability %d", uint32(d))
}

// UnmarshalText reads "media" or "memory".
func (d *Durability) UnmarshalText(text []byte) error {
	switch string(text) {
	case "memory":
		*d = Memory
	case "media":
		*d = Media
	default:
		return fmt.Errorf(`%q is neither "media" (bytes survive a power cut) nor "memory" (bytes survive the process only)`, text)
	}
	return nil
}

// duration is a time that a file gives as a string. Zero means what the field says.
type duration time.Duration

// UnmarshalText reads a duration that is not negative.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is not a duration: write a number with its unit as a string, such as "5s" or "250ms"`, text)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative: a time to wait cannot be", text)
	}
	*d = duration(v)
	return nil
}

// checkAddr accepts "host:port" with a numeric port. The host may be empty only where anyHost allows it (all addresses).
func checkAddr(addr string, anyHost bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf(`%q is not an address: write "host:port", and an IPv6 host in brackets`, addr)
	}
	if host == "" && !anyHost {
		return fmt.Errorf(`%q names no host: write "host:port"`, addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: port %q is not a number from 0 to 65535", addr, port)
	}
	return nil
}
