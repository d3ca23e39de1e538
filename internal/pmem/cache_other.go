//go:build !amd64 && !arm64

package pmem

// canFlush is false where this package has no instructions for the write-back of cache lines: OpenFiles refuses
// DAX mappings there, and writeBack is never reached.
const canFlush = false

func writeBack([]byte) {}

func stream(dst, src []byte) { copy(dst, src) }

func streamZero(b []byte) { clear(b) }

// storeFence has nothing to order: ordinary stores are published by the synchronisation of the Go memory model.
func storeFence() {}
