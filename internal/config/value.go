package config

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
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

// Bytes is a number of bytes that a file gives as a string.
type Bytes uint64

// UnmarshalText reads a size with an optional unit, as in a pool set file.
func (b *Bytes) UnmarshalText(text []byte) error {
	n, err := poolset.ParseSize(string(text))
	if err != nil {
		return fmt.Errorf(`%q is not a size: write a number with its unit as a string, such as "64M"`, text)
	}
	*b = Bytes(n)
	return nil
}

// Bounds of a bounce buffer in bytes.
const (
	minBounce = 4 << 20
	maxBounce = 16 << 30
)

// checkBounce accepts the size of a bounce buffer, or 0 for none.
func checkBounce(n Bytes) error {
	if n != 0 && (n < minBounce || n > maxBounce || n%4096 != 0) {
		return fmt.Errorf("%d bytes are no size of a bounce buffer: write a multiple of 4096 from 4M to 16G, for example %q", n, "64M")
	}
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
