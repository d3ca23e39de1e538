//go:build linux && cgo

package provider

import (
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/ibverbs"
)

func openIBVerbs(o Options) (verbs.Device, error) {
	return ibverbs.Open(ibverbs.Options{Device: o.Device, Addr: o.Addr, GID: o.GID})
}
