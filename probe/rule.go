package probe

import "cmp"

// Rule says how many equal results in a row it takes to count.
type Rule struct {
	SuccessThreshold int // 0 means 1
	FailureThreshold int // 0 means 3
}

// History is the row of equal results so far. The zero value is an empty one.
type History struct {
	last Result
	run  int
}

// Add appends a result to a history. A [Warning] counts as Success and [Unknown] as Failure; verdict is one of these
// two. decided says that the threshold for it is reached, which stays true while the same result goes on; while it is
// false the verdict before remains in force.
func (r Rule) Add(h History, res Result) (next History, verdict Result, decided bool) {
	verdict, need := Failure, cmp.Or(r.FailureThreshold, 3)
	if res.OK() {
		verdict, need = Success, cmp.Or(r.SuccessThreshold, 1)
	}
	if h.last != verdict {
		h = History{last: verdict}
	}
	h.run = min(h.run+1, need)
	return h, verdict, h.run == need
}
