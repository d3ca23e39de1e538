//go:build linux && cgo

package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// #include "shim.h"
import "C"

// choose names the device that Options ask for.
func (m *manager) choose(o Options) (string, error) {
	if o.Device != "" {
		return o.Device, nil
	}
	if o.Addr == "" {
		return sys().firstActive()
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	a, err := resolve(ctx, o.Addr)
	if err != nil {
		return "", err
	}
	if a.IP.IsUnspecified() {
		return sys().firstActive()
	}
	id, err := m.newID()
	if err != nil {
		return "", err
	}
	name, err := id.route(ctx, newSockaddr(a))
	if err = errors.Join(err, id.destroy()); err != nil {
		return "", fmt.Errorf("find the RDMA device for %s: %w: name it (device = \"...\", \"rdma link\" lists them), or use provider = \"iwarp\"", o.Addr, err)
	}
	return name, nil
}

// route names the device that has an address of this machine, or over which the route to another machine leads.
func (id *connID) route(ctx context.Context, a *sockaddr) (string, error) {
	local := *a
	local[2], local[3] = 0, 0 // any port
	err := failed("bind", C.shim_cm_bind(id.c, local.pointer()))
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV):
		if err := id.resolve(ctx, nil, a); err != nil {
			return "", err
		}
	case err != nil:
		return "", err
	}
	if name := id.deviceName(); name != "" {
		return name, nil
	}
	return "", errors.New("the network interface has no RDMA device")
}
