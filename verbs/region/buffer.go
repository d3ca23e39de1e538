package region

import (
	"fmt"

	"github.com/pmemfs/pmemfs/verbs"
)

// NewBuffer registers n bytes of new memory of this process, which every device can have: a bounce buffer for a pool that it cannot.
func NewBuffer(dev verbs.Device, pd verbs.PD, n uint64, a verbs.Access) (verbs.MR, error) {
	var err error
	if pins(dev, a) {
		err = checkPin(n)
	}
	if err == nil {
		var mr verbs.MR
		if mr, err = pd.RegisterMR(make([]byte, n), a); err == nil {
			return mr, nil
		}
	}
	return nil, fmt.Errorf("device %s: bounce buffer of %d bytes: %w", dev.Name(), n, err)
}
