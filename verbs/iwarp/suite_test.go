package iwarp

import (
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

func TestProvider(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b Options
	}{
		{"Plain", Options{}, Options{}},
		{"CRC", Options{CRC: true}, Options{}},
		{"Revision1", Options{Revision1: true}, Options{}},
		{"OneRead", Options{IRD: 1, ORD: 1}, Options{IRD: 1, ORD: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			verbstest.TestProvider(t, func(testing.TB) (verbs.Device, verbs.Device, string) {
				return New(c.a), New(c.b), "127.0.0.1:0"
			})
		})
	}
}
