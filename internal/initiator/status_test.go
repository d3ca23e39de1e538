package initiator

import "testing"

func TestWriteBack(t *testing.T) {
	for _, c := range []struct {
		arch string
		eadr bool
		want string
	}{{"amd64", false, "CLWB+SFENCE"}, {"amd64", true, "SFENCE, eADR"}, {"arm64", false, "DC CVAP+DSB"}, {"arm64", true, "DSB, eADR"}} {
		if got := writeBack(c.arch, c.eadr); got != c.want {
			t.Errorf("%s, eADR %v: %q", c.arch, c.eadr, got)
		}
	}
}
