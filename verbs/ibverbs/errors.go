//go:build linux && cgo

package ibverbs

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/verbs"
)

// #include "shim.h"
import "C"

// failed makes an error of an errno that a call returned, nil of 0. Some drivers return it negative, as kernels do.
func failed(call string, errno C.int) error {
	if errno == 0 {
		return nil
	}
	if errno < 0 {
		errno = -errno
	}
	return fmt.Errorf("%s: %w", call, syscall.Errno(errno))
}

// destroyed is failed for calls that destroy something. EIO means that the device is gone, and with it whatever it held.
func destroyed(call string, errno C.int) error {
	if syscall.Errno(errno) == syscall.EIO {
		return nil
	}
	return failed(call, errno)
}

// explainRegister names the fix where a region is refused.
func explainRegister(err error, device string, size int, a verbs.Access) error {
	var fix string
	switch {
	case errors.Is(err, syscall.EOPNOTSUPP) && a&verbs.OnDemand == 0:
		fix = "memory of this kind cannot be pinned: a file on a DAX file system needs a device with on-demand paging, or use a Device DAX part"
	case errors.Is(err, syscall.EOPNOTSUPP):
		fix = "the device cannot page this memory on demand: use a Device DAX part"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EPERM):
		var l unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Cur != unix.RLIM_INFINITY {
			fix = fmt.Sprintf("the limit of locked memory is %d bytes: raise it (ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit)", l.Cur)
		} else {
			fix = "there is not enough memory to pin, or the device has no room for so many pages"
		}
	case errors.Is(err, syscall.EINVAL) && a&verbs.RemoteFlush != 0:
		fix = "native FLUSH needs persistent memory: this memory is not, or the device cannot see that it is"
	case errors.Is(err, syscall.EFAULT):
		fix = "the memory is not mapped, or not writable"
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENODEV):
		fix = "the device is gone"
	default:
		return fmt.Errorf("ibverbs: register %d bytes with %s: %w", size, device, err)
	}
	return fmt.Errorf("ibverbs: register %d bytes with %s: %w: %s", size, device, err, fix)
}

// statusOf turns a completion's status (ibv_poll_cq(3)) into that of the API, with what it means. Of StatusFlushed the cause is elsewhere.
func statusOf(op verbs.Opcode, status C.uint32_t, vendor C.uint32_t) (verbs.Status, error) {
	switch status {
	case C.IBV_WC_WR_FLUSH_ERR:
		return verbs.StatusFlushed, nil
	case C.IBV_WC_LOC_LEN_ERR:
		return verbs.StatusLength, errors.New("the message is longer than its receive")
	case C.IBV_WC_LOC_QP_OP_ERR:
		if op == verbs.OpRecv { // what rxe says
			return verbs.StatusLength, errors.New("the message is longer than its receive")
		}
	case C.IBV_WC_LOC_PROT_ERR, C.IBV_WC_LOC_ACCESS_ERR:
		return verbs.StatusProtect, errors.New("a local region is gone or lacks the right")
	case C.IBV_WC_REM_ACCESS_ERR:
		return verbs.StatusProtect, errors.New("key, bounds or rights of a region were violated")
	case C.IBV_WC_REM_INV_REQ_ERR:
		if op == verbs.OpSend || op == verbs.OpRecv {
			return verbs.StatusLength, errors.New("the message is longer than its receive")
		}
		return verbs.StatusProtect, errors.New("the peer calls the request invalid")
	case C.IBV_WC_REM_OP_ERR:
		return verbs.StatusPeer, errors.New("the peer could not carry out the request")
	case C.IBV_WC_RNR_RETRY_EXC_ERR:
		return verbs.StatusPeer, errors.New("the peer had no receive posted")
	case C.IBV_WC_RETRY_EXC_ERR, C.IBV_WC_RESP_TIMEOUT_ERR:
		return verbs.StatusTransport, errors.New("no answer: the peer, the network or a port is down")
	}
	return verbs.StatusTransport, fmt.Errorf("the device reports completion status %d, vendor error %#x", status, vendor)
}
