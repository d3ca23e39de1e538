package pmem

import (
	"bytes"
	"testing"
)

func TestEveryFlushInstruction(t *testing.T) {
	b := make([]byte, 1000)
	fill(newRand(t), b)
	want := bytes.Clone(b)
	for _, mask := range []uint32{0, bitCLFLUSHOPT, bitCLWB, bitCLWB | bitCLFLUSHOPT} {
		flush := chooseFlush(cpuidFeatures() & mask)
		for off := range 70 {
			flush(&b[off], uintptr(len(b)-off))
			flush(&b[off], 1)
		}
		storeFence()
	}
	if !bytes.Equal(b, want) {
		t.Error("write-back changed bytes")
	}
}
