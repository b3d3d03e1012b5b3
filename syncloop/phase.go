package syncloop

// phase of a pod's life, drawn in doc.go.
type phase uint8

const (
	held phase = iota
	syncing
	terminating
	terminated
	finished
	forgotten
)

func (p phase) String() string {
	return [...]string{"held", "syncing", "terminating", "terminated", "finished", "forgotten"}[p]
}

// event moves a pod from one phase to the next.
type event uint8

const (
	admitted event = iota // it may run
	refused               // it may not
	ended                 // somebody wants it to end: deletion, absence, a killer, its own last phase
	shorter               // it is ending already, and is to end sooner
	still                 // nothing of it runs any more
	returned              // the node has everything back
	gone                  // it is absent from its source, all is told, nothing is left
)

// action is what a transition asks for.
type action uint8

const (
	nothing action = iota
	work           // a step, and a publish
	cut            // the same, and the step under way is cut short
)

// next is the whole state machine. An event that means nothing in a phase changes nothing.
func next(p phase, e event) (phase, action) {
	switch {
	case p == held && e == admitted:
		return syncing, work
	case p == held && (e == refused || e == ended): // something of it may run, from before the agent started
		return terminating, work
	case p == syncing && e == ended:
		return terminating, cut
	case p == terminating && e == shorter:
		return terminating, cut
	case p == terminating && e == still:
		return terminated, work
	case p == terminated && e == returned:
		return finished, work
	case p == finished && e == gone:
		return forgotten, nothing
	}
	return p, nothing
}
