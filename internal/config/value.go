package config

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/pmemfs/pmemfs/internal/pool"
)

// Durability is the promise that a copy must make before a byte counts as durable on it.
type Durability = pool.Durability

const (
	Memory = pool.Memory
	Media  = pool.Media
)

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
