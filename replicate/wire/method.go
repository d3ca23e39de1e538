package wire

import (
	"fmt"
	"strings"
)

// Method is how the bytes of a drain are made persistent at the target. The zero Method leaves the choice to the two sides.
type Method uint32

const (
	// GPSPM: the target's CPU makes ranges persistent on request and answers (general-purpose server persistency method, librpmem(7)).
	GPSPM Method = 1
	// APM: what a READ has proven to be placed is persistent (appliance persistency method, librpmem(7)). The target's CPU does nothing.
	APM Method = 2
	// FLUSH: the target's device makes ranges persistent, by RDMA FLUSH, and stores the seal, by ATOMIC_WRITE (IBA annex A19).
	FLUSH Method = 3
)

var methodNames = [...]string{"auto", "GPSPM", "APM", "FLUSH"}

func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("method %d", uint32(m))
}

// UnmarshalText reads "auto", "gpspm", "apm" or "flush", for configuration files.
func (m *Method) UnmarshalText(text []byte) error {
	for i, name := range methodNames {
		if string(text) == strings.ToLower(name) {
			*m = Method(i)
			return nil
		}
	}
	return fmt.Errorf(`%q is no persistency method: use "auto", "gpspm", "apm" or "flush"`, text)
}

// Methods is a set of methods: method m is bit 1<<m.
type Methods uint32

// AllMethods are those that this release knows.
const AllMethods = Methods(1<<GPSPM | 1<<APM | 1<<FLUSH)

// MethodSet is the set of ms.
func MethodSet(ms ...Method) (s Methods) {
	for _, m := range ms {
		s |= 1 << m
	}
	return s
}

// Has tells whether m is in the set.
func (s Methods) Has(m Method) bool { return m != 0 && m < 32 && s>>m&1 != 0 }

// String lists the methods known by name.
func (s Methods) String() string {
	var names []string
	for m := GPSPM; m <= FLUSH; m++ {
		if s.Has(m) {
			names = append(names, m.String())
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
