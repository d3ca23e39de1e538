package pmem

import (
	"bytes"
	"os"
	"testing"
)

// dcpopEnv tells whether the emulated processor has DC CVAP: "yes" or "no".
const dcpopEnv = "PMEMFS_ARM64_DCPOP"

func init() { growRoom = 1 << 30 }

func TestFeaturesOfTheProcessor(t *testing.T) {
	want := os.Getenv(dcpopEnv)
	if want == "" {
		t.Skipf("%s does not say what the processor has", dcpopEnv)
	}
	if has := hwcap()&hwcapDCPOP != 0; has != (want == "yes") {
		t.Errorf("DC CVAP: %v, %s=%s", has, dcpopEnv, want)
	}
	if lineLen < 16 || lineLen > 2048 || lineLen&(lineLen-1) != 0 {
		t.Errorf("lines of %d bytes", lineLen)
	}
}

func TestLineLength(t *testing.T) {
	for ctr, want := range map[uint64]uintptr{0x8444c004: 64, 0x84448004: 64, 0x80050003: 128, 0: 4, 0xf0000: 4 << 15} {
		if n := lineLength(ctr); n != want {
			t.Errorf("CTR_EL0 %#x: %d bytes, want %d", ctr, n, want)
		}
	}
}

// Each instruction that the processor has leaves the bytes alone, for ranges that begin and end anywhere in a line.
func TestEveryFlushInstruction(t *testing.T) {
	b := make([]byte, 1000)
	fill(newRand(t), b)
	want := bytes.Clone(b)
	for _, features := range []uint64{0, hwcap()} {
		flush := chooseFlush(features)
		for off := range 300 {
			flush(&b[off], uintptr(len(b)-off))
			flush(&b[off], 1)
		}
		storeFence()
	}
	if !bytes.Equal(b, want) {
		t.Error("write-back changed bytes")
	}
}
