package poolset

import (
	"errors"
	"math/bits"
	"strconv"
	"strings"
)

// units as poolset(5) has them: single letters and KiB count in powers of 1024, kB and MB in powers of 1000.
var units = map[string]uint64{
	"": 1, "B": 1,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
	"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
}

// ParseSize reads a whole number of bytes with an optional unit, for instance 64M, 64MiB or 64MB.
func ParseSize(s string) (uint64, error) {
	digits := strings.TrimRight(s, "BKMGTPik")
	n, err := strconv.ParseUint(digits, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errTooLarge
	}
	if err != nil || digits[0] == '+' {
		return 0, errors.New("not a whole number")
	}
	unit, ok := units[s[len(digits):]]
	if !ok {
		return 0, errors.New("unknown unit " + s[len(digits):])
	}
	hi, size := bits.Mul64(n, unit)
	if hi != 0 {
		return 0, errTooLarge
	}
	return size, nil
}

var errTooLarge = errors.New("more than 64 bits")
