package verbstest

import "github.com/pmemfs/pmemfs/verbs"

// Small is dev, of which Caps says that a region has at most most bytes, so that the pool of a test is registered in several chunks.
func Small(dev verbs.Device, most uint64) verbs.Device { return small{dev, most} }

type small struct {
	verbs.Device
	most uint64
}

func (d small) Caps() verbs.Caps {
	c := d.Device.Caps()
	c.MaxRegion = d.most
	return c
}
