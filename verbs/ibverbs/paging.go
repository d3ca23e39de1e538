//go:build linux && cgo

package ibverbs

// #include "shim.h"
// int shim_paging(struct ibv_context *c, int port, int gid_index);
import "C"

// provePaging takes on-demand paging out of the capabilities of a rxe that has it wrong. In Linux 7.3 rxe copies to and from pages that it got on
// demand as if every request pointed at the start of its page: a WRITE destroys other bytes than those that it names, and no completion tells.
// A rxe that cannot be tried counts as wrong. Hardware has its own paging.
func (d *device) provePaging() error {
	table, err := d.gids()
	if err != nil {
		return err
	}
	if g, ok := chooseGID(table, d.gid); !ok || C.shim_paging(d.context, C.int(d.port), C.int(g.index)) != 0 {
		d.caps.OnDemand = false
	}
	return nil
}
