package pmem

// Cache control of x86-64: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section 11.4.4 (SFENCE,
// non-temporal stores) and volume 2 (CLWB, CLFLUSHOPT, CLFLUSH).

// lineLen is the length in bytes of a cache line.
const lineLen = 64

// Bits of CPUID leaf 7, register EBX.
const (
	bitCLFLUSHOPT = 1 << 23
	bitCLWB       = 1 << 24
)

// canFlush says that writeBack and storeFence reach the persistence domain.
const canFlush = true

// flushRun starts the write-back of all cache lines that [p, p+n) touches; n is not zero. CLWB keeps the line in the cache;
// CLFLUSHOPT, and CLFLUSH, which every x86-64 processor has, evict it.
var flushRun = chooseFlush(cpuidFeatures())

func chooseFlush(ebx7 uint32) func(p *byte, n uintptr) {
	switch {
	case ebx7&bitCLWB != 0:
		return flushCLWB
	case ebx7&bitCLFLUSHOPT != 0:
		return flushCLFLUSHOPT
	}
	return flushCLFLUSH
}

// writeBack starts the write-back of b from the CPU caches; storeFence waits for it. SFENCE orders what its own processor did. A goroutine that
// goes on on another processor in between has been handed over by locked instructions, and these order the flushes of the first one as well.
func writeBack(b []byte) {
	for p := range pieces(len(b)) {
		flushRun(&b[p.lo], uintptr(p.hi-p.lo))
	}
}

// stream copies src to dst, of equal length, past the cache as far as whole lines go. Its first and last bytes go
// through the cache, so dst still needs a flush. storeFence must follow before others are told of the bytes.
func stream(dst, src []byte) {
	head, body := lineSplit(dst)
	copy(dst[:head], src)
	if body > 0 {
		streamLines(&dst[head], &src[head], uintptr(body))
	}
	copy(dst[head+body:], src[head+body:])
}

// streamZero clears b under the same terms as stream.
func streamZero(b []byte) {
	head, body := lineSplit(b)
	clear(b[:head])
	if body > 0 {
		streamZeroLines(&b[head], uintptr(body))
	}
	clear(b[head+body:])
}

// lineSplit returns the bytes of b before its first whole line, and those of its whole lines.
func lineSplit(b []byte) (head, body int) {
	head = min(int(-address(b)%lineLen), len(b))
	return head, (len(b) - head) &^ (lineLen - 1)
}

func cpuidFeatures() (ebx7 uint32)

//go:noescape
func flushCLWB(p *byte, n uintptr)

//go:noescape
func flushCLFLUSHOPT(p *byte, n uintptr)

//go:noescape
func flushCLFLUSH(p *byte, n uintptr)

func storeFence()

// streamLines copies n bytes, a multiple of 64 and not zero, to the 64-byte aligned dst.
//
//go:noescape
func streamLines(dst, src *byte, n uintptr)

//go:noescape
func streamZeroLines(dst *byte, n uintptr)
