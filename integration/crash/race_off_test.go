//go:build !race

package crash

const share = 1
