//go:build !linux || !cgo

package provider

import (
	"fmt"

	"github.com/pmemfs/pmemfs/verbs"
)

func openIBVerbs(Options) (verbs.Device, error) {
	return nil, fmt.Errorf("this program was built without the provider %q (it needs Linux and cgo): use %q", IBVerbs, IWARP)
}
