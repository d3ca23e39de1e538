//go:build !race

package pmemtest

import "bytes"

func equal(a, b []byte) bool { return bytes.Equal(a, b) }
