package pool

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Durability is the class of failure that acknowledged bytes of a copy survive. The numbers are those of the wire.
type Durability uint32

const (
	// Memory: bytes survive the death of the process. After a reboot the copy is Inconsistent.
	Memory Durability = 1
	// Media: bytes survive the loss of power.
	Media Durability = 2
)

// ErrDurability: the parts cannot keep the durability asked for.
var ErrDurability = errors.New("durability cannot be kept")

func (d Durability) String() string {
	switch d {
	case Memory:
		return "memory"
	case Media:
		return "media"
	}
	return fmt.Sprintf("durability %d", uint32(d))
}

// UnmarshalText reads "memory" or "media", for configuration files and flags.
func (d *Durability) UnmarshalText(text []byte) error {
	switch string(text) {
	case "memory":
		*d = Memory
	case "media":
		*d = Media
	default:
		return fmt.Errorf("durability %q: expected \"memory\" or \"media\"", text)
	}
	return nil
}

// check refuses a promise that is less than d.
func (d Durability) check(file string, p pmem.Promise) error {
	switch {
	case d != Memory && d != Media:
		return fmt.Errorf("pool %s: %v is no durability class: expected memory or media", file, d)
	case d == Media && p == pmem.Volatile:
		return fmt.Errorf("pool %s: %w: a part is on a file system in memory (tmpfs), which can only promise "+
			"durability = \"memory\": set that, or move the part to persistent memory or a disk", file, ErrDurability)
	}
	return nil
}
