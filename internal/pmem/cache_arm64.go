package pmem

import (
	"golang.org/x/sys/unix"
)

// Cache control of AArch64: Arm Architecture Reference Manual for A-profile, DC CVAP and DC CVAC (C5.3), memory barriers (B2.3).
//
// DC CVAP cleans a line to the Point of Persistence. Where the processor has no such instruction (FEAT_DPB) the architecture lets
// software take the Point of Coherency for it, as Linux does (arch/arm64/mm/flush.c): the system then has to have a memory controller
// that keeps what it has taken. DC CVADP, to the Point of Deep Persistence, guards also against the failure of a part of the memory
// system, which is not promised here.
//
// Both instructions are in program order with stores of their processor to the same line, so that they need no barrier in front of them, and are
// complete after a DSB of the same processor. It is DSB SY, as Linux has it there (dcache_clean_pop): the Point of Persistence lies
// outside of the inner and outer shareable domains, and so may devices that reach the memory. It ends each run of flushes, and not only Fence does it:
// a goroutine may go on on another processor in between, and nothing that the scheduler does then waits for cache maintenance of the first one.

// canFlush says that writeBack and storeFence reach the persistence domain.
const canFlush = true

// minLineLen is the least length in bytes of a line that any processor of the architecture has: 2^0 words of 4 bytes.
const minLineLen = 4

// lineLen is the length in bytes of the shortest line of all data caches: CTR_EL0.DminLine, which Linux lets programs read, or shows the
// same everywhere to where processors differ.
var lineLen = lineLength(cacheType())

// lineLength is 4 bytes shifted by DminLine, bits 19 to 16 of CTR_EL0.
func lineLength(ctr uint64) uintptr { return minLineLen << (ctr >> 16 & 0xf) }

// flushRun writes all cache lines that [p, p+n) touches back; n is not zero.
var flushRun = chooseFlush(hwcap())

func chooseFlush(hwcap uint64) func(p *byte, n uintptr) {
	if hwcap&hwcapDCPOP != 0 {
		return flushCVAP
	}
	return flushCVAC
}

const (
	atHWCap    = 16      // AT_HWCAP of getauxval(3)
	hwcapDCPOP = 1 << 16 // HWCAP_DCPOP of arch/arm64/include/uapi/asm/hwcap.h: DC CVAP
)

// hwcap is what the kernel says that programs may use of the processor; nothing if it does not tell.
func hwcap() uint64 {
	auxv, err := unix.Auxv()
	if err != nil {
		return 0
	}
	for _, entry := range auxv {
		if entry[0] == atHWCap {
			return uint64(entry[1])
		}
	}
	return 0
}

// writeBack writes b back from the CPU caches.
func writeBack(b []byte) {
	for p := range pieces(len(b)) {
		flushRun(&b[p.lo], uintptr(p.hi-p.lo))
	}
}

// stream copies src to dst, of equal length. Non-temporal stores of this architecture are a hint that does not keep bytes out of the
// caches, so dst needs a flush as after any copy.
func stream(dst, src []byte) { copy(dst, src) }

func streamZero(b []byte) { clear(b) }

func cacheType() (ctr uint64)

//go:noescape
func flushCVAP(p *byte, n uintptr)

//go:noescape
func flushCVAC(p *byte, n uintptr)

// storeFence completes stores; in a region with eADR nothing else stands between them and persistence.
func storeFence()
