package config

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// nearest is the known key that key was most likely meant to be, or "" if none is close. A key that stands in the wrong
// table under its right name counts as close.
func nearest(key toml.Key, known []string) string {
	best, least := "", 1<<30
	for _, k := range known {
		names := strings.Split(k, ".")
		last := names[len(names)-1]
		d := distance(key[len(key)-1], last)
		if d > max(1, len(last)/3) {
			continue
		}
		d *= 2
		if !matches(key[:len(key)-1], names[:len(names)-1]) {
			d++ // the same name in its own table wins over one in another table
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of single characters to insert, delete, exchange or swap with their neighbour to turn a into b.
func distance(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(above[j]+change, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
