package config

import (
	"fmt"

	"github.com/pmemfs/pmemfs/verbs/provider"
)

// RDMA says which provider of RDMA is used, and how.
type RDMA struct {
	// Provider is provider.IWARP or provider.IBVerbs. Default IWARP.
	Provider string
	// Device is the RDMA device that IBVerbs uses. Default: the one that the route leads over.
	Device string
	// GID is the index of the local GID that IBVerbs uses on Ethernet. Default provider.AnyGID: chosen.
	GID int
	// CRC asks that frames of IWARP carry a CRC. Default false.
	CRC bool
}

var defaultRDMA = RDMA{Provider: provider.IWARP, GID: provider.AnyGID}

// newRDMA makes an RDMA of the values of a file, in which nil stands for the default.
func newRDMA(name *string, device string, gid *int, crc bool) RDMA {
	r := defaultRDMA
	r.Device, r.CRC = device, crc
	if name != nil {
		r.Provider = *name
	}
	if gid != nil {
		r.GID = *gid
	}
	return r
}

// Options are those of a device that connects to addr or listens there.
func (r RDMA) Options(addr string) provider.Options {
	return provider.Options{Name: r.Provider, Device: r.Device, GID: r.GID, CRC: r.CRC, Addr: addr}
}

// maxGID is the largest index that a GID table can have: the kernel keeps it in one byte.
const maxGID = 255

// check names the key that is wrong.
func (r RDMA) check() (key string, err error) {
	switch {
	case r.Provider != provider.IWARP && r.Provider != provider.IBVerbs:
		return "provider", fmt.Errorf("%q is not known: use %q or %q", r.Provider, provider.IWARP, provider.IBVerbs)
	case r.GID != provider.AnyGID && (r.GID < 0 || r.GID > maxGID):
		return "gid", fmt.Errorf("%d is not an index of a GID table: use a number from 0 to %d, or %d to have it chosen", r.GID, maxGID, provider.AnyGID)
	case r.Provider == provider.IWARP && r.Device != "":
		return "device", fmt.Errorf("is of use only with provider = %q", provider.IBVerbs)
	case r.Provider == provider.IWARP && r.GID != provider.AnyGID:
		return "gid", fmt.Errorf("is of use only with provider = %q", provider.IBVerbs)
	case r.Provider == provider.IBVerbs && r.CRC:
		return "crc", fmt.Errorf("is of use only with provider = %q: leave it out", provider.IWARP)
	}
	return "", nil
}
