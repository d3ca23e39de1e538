// Package platform knows what a machine does with the bytes that are in its CPU caches when the power fails, and whether bytes that
// arrive by RDMA pass through these caches.
//
// Neither can be found out by a program. The firmware's opinion of the first comes by way of the kernel (the persistence domain of a
// region), but that of a virtual machine says what somebody wrote on a command line, and that of a real one does not know whether
// the battery that it counts on is still good. So only the platform file, written by the administrator, counts. A declaration that
// is missing costs a microsecond per flush; one that is wrong loses acknowledged bytes without a word. What the kernel says is compared with
// it, and a contradiction is told.
package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/nvdimm"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/verbs"
)

// DefaultPath is where the platform file is looked for if no other is named. It need not be there.
const DefaultPath = "/etc/pmemfs/platform.toml"

// Platform is this machine.
type Platform struct {
	config.Platform
	sysfs nvdimm.Sysfs
}

// Load reads the platform file at path, which must be there, or with an empty path the usual one if there is one. Without a file nothing
// is declared. Errors about the content are *config.Error.
func Load(path string) (*Platform, error) {
	declared, err := load(path)
	if err != nil {
		return nil, err
	}
	return &Platform{Platform: *declared, sysfs: nvdimm.Kernel}, nil
}

func load(path string) (*config.Platform, error) {
	if path == "" {
		declared, err := config.LoadPlatform(DefaultPath)
		if errors.Is(err, fs.ErrNotExist) {
			return &config.Platform{Path: DefaultPath}, nil
		}
		return declared, err
	}
	declared, err := config.LoadPlatform(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("platform = %q: %w: write that file (packaging/platform.toml shows one), or leave the key out, which declares nothing unless %s is there", path, err, DefaultPath)
	}
	return declared, err
}

// InboundPersistent tells whether bytes that arrived at an RDMA device of this machine are in the persistence domain once a Read that
// followed them has been answered. why says it in words, for a status.
//
// On a PCIe port whose writes bypass the caches the Read pushes the bytes out of the device and the bridges into the memory
// controller. Elsewhere they may stay in a cache, which counts only if the caches survive.
func (p *Platform) InboundPersistent(device string, c verbs.Caps) (ok bool, why string) {
	switch {
	case p.EADR:
		return true, fmt.Sprintf("%s declares eadr: the CPU caches are persistent", p.Path)
	case c.CPUPlaced:
		return false, fmt.Sprintf("%s stores inbound bytes with the CPU, so that they stay in its caches, and %s does not declare eadr", device, p.Path)
	case slices.Contains(p.Inbound, device):
		return true, fmt.Sprintf("%s declares that inbound writes of %s bypass the CPU caches", p.Path, device)
	}
	return false, fmt.Sprintf("%s declares neither eadr nor that inbound writes of %s bypass the CPU caches", p.Path, device)
}

// Doubts are the declarations that the kernel contradicts for the memory of these parts of a pool, in words. They are followed all
// the same: the administrator may know of a battery that the firmware does not.
func (p *Platform) Doubts(parts []poolset.Part) []string {
	if !p.EADR {
		return nil
	}
	var doubts []string
	for _, part := range parts {
		regions, err := p.sysfs.Regions(part.Path)
		if err != nil {
			doubts = append(doubts, fmt.Sprintf("%s declares eadr, which cannot be compared with what the kernel says: %v", p.Path, err))
		}
		for _, r := range regions {
			if r.Domain == nvdimm.MemoryController {
				doubts = append(doubts, fmt.Sprintf("%s declares eadr, but the kernel says that the CPU caches do not belong to the persistence "+
					"domain of %s, which holds %s: bytes that were acknowledged are lost with the power if the kernel is right", p.Path, r.Name, part.Path))
			}
		}
	}
	return doubts
}
