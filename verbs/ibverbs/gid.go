package ibverbs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// AnyGID lets the entry of the GID table be chosen.
const AnyGID = -1

// gid is an entry of the GID table of a port on Ethernet.
type gid struct {
	index int
	addr  netip.Addr // IPv4 where the GID is a mapped one
	v2    bool       // RoCE version 2
}

// chooseGID takes the entry with the index want, or, with AnyGID, the first of RoCE version 2 that other machines reach: an
// IPv4 address rather than an IPv6 one, and no link-local one. ok is false if none suits.
func chooseGID(table []gid, want int) (g gid, ok bool) {
	for _, e := range table {
		switch {
		case want != AnyGID:
			if e.index == want {
				return e, true
			}
		case !e.v2 || e.addr.IsLinkLocalUnicast():
		case !ok || e.addr.Is4() && !g.addr.Is4():
			g, ok = e, true
		}
	}
	return g, ok
}

// version2 is the index of the entry of RoCE version 2 with the same address as entry index, or index itself.
func version2(table []gid, index int) int {
	at := slices.IndexFunc(table, func(g gid) bool { return g.index == index })
	if at < 0 || table[at].v2 {
		return index
	}
	for _, g := range table {
		if g.v2 && g.addr == table[at].addr {
			return g.index
		}
	}
	return index
}

func listGIDs(table []gid) string {
	var b strings.Builder
	b.WriteString("there are")
	for _, g := range table {
		version := 1
		if g.v2 {
			version = 2
		}
		fmt.Fprintf(&b, " %d (%v, RoCE v%d)", g.index, g.addr, version)
	}
	return b.String()
}
