//go:build linux && cgo

package ibverbs

import (
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// #include <stdlib.h>
// #include "shim.h"
import "C"

// The pointers of struct shim_pointer are of the type that the function that made them is for. The memory is C's.

func contextOf(r C.struct_shim_pointer) *C.struct_ibv_context { return (*C.struct_ibv_context)(r.p) }
func pdOf(r C.struct_shim_pointer) *C.struct_ibv_pd           { return (*C.struct_ibv_pd)(r.p) }
func mrOf(r C.struct_shim_pointer) *C.struct_ibv_mr           { return (*C.struct_ibv_mr)(r.p) }
func cqOf(r C.struct_shim_pointer) *C.struct_shim_cq          { return (*C.struct_shim_cq)(r.p) }
func qpOf(r C.struct_shim_pointer) *C.struct_shim_qp          { return (*C.struct_shim_qp)(r.p) }
func idOf(r C.struct_shim_pointer) *C.struct_rdma_cm_id       { return (*C.struct_rdma_cm_id)(r.p) }
func channelOf(r C.struct_shim_pointer) *C.struct_rdma_event_channel {
	return (*C.struct_rdma_event_channel)(r.p)
}

// addressOf is the same as a number, for calls that are made often. It is C memory, so nothing else keeps it alive anyway.
func addressOf(r C.struct_shim_pointer) C.uintptr_t { return C.uintptr_t(uintptr(r.p)) }

func freeString(s *C.char) { C.free(unsafe.Pointer(s)) }

// address is that of b's first byte, as the device gets it. Go does not move memory, and the region keeps it from being freed.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// rings are the work requests of a queue pair in C memory. shim_qp made one place more than there are.
type rings struct {
	send   []C.struct_shim_send
	recv   []C.struct_shim_recv
	inline []byte
}

func ringsOf(q *C.struct_shim_qp, sends, recvs int) rings {
	return rings{
		unsafe.Slice(q.send, sends), unsafe.Slice(q.recv, recvs),
		unsafe.Slice((*byte)(unsafe.Pointer(q.inl)), sends*int(q.max_inline)),
	}
}

// sockaddr is an address as the kernel takes it: room for sockaddr_in and sockaddr_in6.
type sockaddr [unix.SizeofSockaddrInet6]byte

func (s *sockaddr) pointer() unsafe.Pointer {
	if s == nil {
		return nil
	}
	return unsafe.Pointer(s)
}

func newSockaddr(a *net.TCPAddr) *sockaddr {
	s := new(sockaddr)
	port := [2]byte{byte(a.Port >> 8), byte(a.Port)}
	if ip := a.IP.To4(); ip != nil {
		*(*uint16)(unsafe.Pointer(&s[0])) = unix.AF_INET
		copy(s[2:], port[:])
		copy(s[4:], ip)
		return s
	}
	*(*uint16)(unsafe.Pointer(&s[0])) = unix.AF_INET6
	copy(s[2:], port[:])
	copy(s[8:], a.IP.To16())
	if i, err := net.InterfaceByName(a.Zone); a.Zone != "" && err == nil {
		*(*uint32)(unsafe.Pointer(&s[24])) = uint32(i.Index)
	}
	return s
}

func (s *sockaddr) tcp() *net.TCPAddr {
	a := &net.TCPAddr{Port: int(s[2])<<8 | int(s[3])}
	switch *(*uint16)(unsafe.Pointer(&s[0])) {
	case unix.AF_INET:
		a.IP = netip.AddrFrom4([4]byte(s[4:8])).AsSlice()
	case unix.AF_INET6:
		a.IP = netip.AddrFrom16([16]byte(s[8:24])).AsSlice()
	}
	return a
}

// pointerTo is b for the time of a call.
func pointerTo(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// bytesOf copies the private data of an event.
func bytesOf(e *C.struct_shim_cm_event) []byte {
	return C.GoBytes(unsafe.Pointer(&e.private_data[0]), C.int(e.private_len))
}

func (id *connID) localAddr() *net.TCPAddr {
	var s sockaddr
	C.shim_cm_addr(id.c, 0, s.pointer())
	return s.tcp()
}

func (id *connID) peerAddr() *net.TCPAddr {
	var s sockaddr
	C.shim_cm_addr(id.c, 1, s.pointer())
	return s.tcp()
}
