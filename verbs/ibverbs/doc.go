// Package ibverbs is the provider for RDMA devices of the kernel: InfiniBand, RoCE and iWARP adapters and the software devices rxe and
// siw, through libibverbs and librdmacm. It is the only package that uses cgo; a build without cgo has nothing of it but this text
// and the choice of devices.
//
// # Crossings
//
// One crossing into C posts a batch, one polls up to 32 completions. Requests and completions stand in C memory, which the queue
// pair or completion queue owns; Go fills and reads it in place. C keeps no Go pointer: what it gives back with a completion
// is a number (handle.go). Errors come back from the same crossing as an errno. C reads no registered memory: an inline source is copied
// by Go into memory of the queue pair first, because a fault in C, on a page of a file that was cut short, could not be caught.
//
// Nothing is allocated for a request posted and its completion reaped.
//
// # Waiting
//
// The completion channel, the channel of the connection manager and that of asynchronous events are descriptors in the runtime's poller, so
// no thread sleeps in C for long. What can block there: destroying a queue pair, region or connection, until the kernel
// lets go of it; and with siw rdma_connect, while TCP connects: two minutes, if a firewall drops what goes to the port (net.ipv4.tcp_syn_retries). Connect and
// Close of the queue pair return in time all the same. What the kernel still needs of queue pair, protection domain and completion queues is freed when it
// is done, by a goroutine of the device; Close of the device waits a second for that, then fails, and may be called again.
//
// # Connections
//
// Set-up is that of rdma_cm. The device has its own context and drives the queue pairs through their states itself, so a
// queue pair exists before its connection, on any protection domain, and takes receives.
//
// siw, as the side that accepts, may leave the first requests of its peer lying until more arrives. The side that has connected over siw therefore sends Writes of no
// bytes until it has got an answer (nudge.go).
//
// A device with on-demand paging lets a peer wait while it gets a page, by an answer that it gives for want of a receive as well. So on a connection to
// such a device a Send without a receive ends it after some 15 ms, not at once.
//
// A queue pair that fails disconnects, so that the peer gets to know it. What tells that it failed: a completion with an error,
// a disconnect by the peer, an asynchronous event (fatal errors of queue pair, completion queue or device, a port that goes down), and the removal of the
// device. The device then flushes its queues; what it has not flushed after flushPatience is flushed here, for some devices do not
// flush what is posted in a state that they are leaving, and a removed one flushes nothing.
//
// # A device that is gone
//
// After its removal, or a fatal error, nothing that was made with a device works again, and more cannot be made: ErrDeviceGone. Everything has to be closed as ever.
// Close then gives back memory and descriptors of this process, as libibverbs is told to (library in device.go); the kernel has taken its own back
// before. What stays, one removal at a time and until the process ends, is what a library keeps that does not know of that (before
// rdma-core 23): the memory of the queues and a descriptor for each completion queue. Both daemons end, or are mounted anew, after one removal.
//
// # Goroutines
//
// Each device has two, for the events of the connection manager and for asynchronous ones, which Close of the device ends and joins. Each
// connected queue pair has one, which takes a failed connection down, and each Connect has one; Close of the queue pair ends and joins them, unless the kernel holds a
// Connect up: then Close of the device joins it.
//
// # Locks
//
// In this order: manager.mu, completionQueue.mu (completions are taken from the device and handed on in order), qp.mu (state and
// both queues), the lock of cq.Queue. device.mu is a leaf, and so is pd.mu.
package ibverbs
