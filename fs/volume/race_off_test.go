//go:build !race

package volume

const race = false
