//go:build race

package volume

const race = true
