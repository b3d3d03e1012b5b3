package config

import (
	"iter"
	"slices"
	"strings"
)

// nearest finds the name that was probably meant; empty: none comes near.
func nearest(name string, among iter.Seq[string]) string {
	best, least := "", 1+min(3, 1+len(name)/4)
	for _, other := range slices.Sorted(among) {
		if d := distance(strings.ToLower(name), strings.ToLower(other)); d < least {
			best, least = other, d
		}
	}
	return best
}

// distance is how many letters must be changed, added or dropped to come from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
