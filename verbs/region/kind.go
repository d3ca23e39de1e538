package region

import (
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/verbs"
)

// KindError: the device cannot be given memory of this kind.
type KindError struct {
	Device string
	Kind   pmem.Kind
}

func (e *KindError) Error() string {
	if e.Kind == pmem.FSDAX {
		return fmt.Sprintf("device %s has no on-demand paging, without which files of a DAX file system cannot be registered: "+
			"use Device DAX parts (ndctl create-namespace -m devdax), a device with on-demand paging, or bounce buffers (bounce = %q)", e.Device, "64M")
	}
	return fmt.Sprintf("device %s cannot be given a pool in the page cache, whose pages the kernel writes back behind it: "+
		"use parts in persistent memory, bounce buffers (bounce = %q), or provider %q, which stores by itself", e.Device, "64M", "iwarp")
}

// rights are those that memory of kind k is registered with, if want is wanted.
func rights(dev verbs.Device, k pmem.Kind, want verbs.Access) (verbs.Access, error) {
	caps := dev.Caps()
	switch {
	case caps.OwnStores:
		return want, nil
	case k == pmem.PageCacheFile, k == pmem.FSDAX && !caps.OnDemand:
		return 0, &KindError{dev.Name(), k}
	case k == pmem.FSDAX:
		return want | verbs.OnDemand, nil
	}
	return want, nil
}

// pins tells whether the pages of memory that is registered with a are pinned.
func pins(dev verbs.Device, a verbs.Access) bool {
	return !dev.Caps().OwnStores && a&verbs.OnDemand == 0
}
