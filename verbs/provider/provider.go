// Package provider opens the RDMA device that a configuration names, of whatever provider.
package provider

import (
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
)

// Names of the providers.
const (
	IWARP   = "iwarp"   // RDMA in the process itself, over TCP; needs no RDMA device
	IBVerbs = "ibverbs" // an RDMA device of the kernel
)

// AnyGID lets the provider choose the entry of the GID table.
const AnyGID = -1

// Options choose a provider and its device. What a provider does not know, it ignores.
type Options struct {
	Name   string // IWARP or IBVerbs
	Device string // of IBVerbs: name of the device, or empty: the one that the route to Addr leads over
	// Addr is where the device will connect to or listen, "host:port". Used only to choose a device.
	Addr         string
	GID          int           // of IBVerbs on Ethernet: index of the local GID, or AnyGID
	CRC          bool          // of IWARP: a checksum in every frame
	WriteTimeout time.Duration // of IWARP: how long a peer may take nothing; 0: the provider's default
}

// Open opens a device.
func Open(o Options) (verbs.Device, error) {
	switch o.Name {
	case IWARP:
		return iwarp.New(iwarp.Options{CRC: o.CRC, WriteTimeout: o.WriteTimeout}), nil
	case IBVerbs:
		return openIBVerbs(o)
	}
	return nil, fmt.Errorf("provider %q is not known: use %q or %q", o.Name, IWARP, IBVerbs)
}
