package hygiene

import (
	"cmp"
	"strconv"
	"strings"
)

// newer compares two versions, v1.2.3 or go1.2.3. An empty one is older than any.
func newer(a, b string) bool {
	if b == "" || a == "" {
		return a != ""
	}
	x, y := numbers(a), numbers(b)
	for i := range x {
		if c := cmp.Compare(x[i], y[i]); c != 0 {
			return c > 0
		}
	}
	return false
}

// numbers are the three numbers of a version; what is not there is 0.
func numbers(version string) (out [3]int) {
	version = strings.TrimLeft(version, "vgo")
	version, _, _ = strings.Cut(version, "-")
	for i, part := range strings.SplitN(version, ".", 3) {
		out[i], _ = strconv.Atoi(part) // a word counts as 0
	}
	return out
}
