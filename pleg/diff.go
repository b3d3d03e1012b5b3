package pleg

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Kind of an event.
type Kind uint8

const (
	Started Kind = iota + 1 // a container runs, a sandbox is ready
	Died                    // it ended
	Removed                 // it is gone, after it died

	// Changed is the rest. From Diff it is a container that is created and not running yet, or whose state the runtime
	// cannot tell: reason for a closer look, but not told. What is told as Changed has no container: a pod that could
	// not be looked at now was, and nothing else is to be said of it.
	Changed
)

func (k Kind) String() string {
	return [...]string{"none", "started", "died", "removed", "changed"}[min(k, Changed)]
}

// Event says what happened to a container or sandbox.
type Event struct {
	Kind      Kind
	Pod       runtime.PodRef
	Container string // ID of the container or sandbox; empty when it is about the whole pod
}

// Diff compares two listings, container by container and sandbox by sandbox, by ID. Events are grouped by pod; within
// a pod, what was there before comes first, and older before younger.
func Diff(was, is []runtime.Pod) []Event {
	var events []Event
	now := make(map[types.UID]runtime.Pod, len(is))
	for _, p := range is {
		now[p.UID] = p
	}
	for _, p := range was {
		events = append(events, diff(p, now[p.UID])...)
		delete(now, p.UID)
	}
	for _, p := range is {
		if _, unseen := now[p.UID]; unseen {
			events = append(events, diff(runtime.Pod{}, p)...)
		}
	}
	return events
}

// diff compares two looks at one pod; the zero Pod is one that does not exist.
func diff(was, is runtime.Pod) []Event {
	if same(&was, &is) {
		return nil
	}
	about := ref(was, is)
	before, after := states(was), states(is)
	var events []Event
	add := func(id string) {
		old, had := before[id]
		now, has := after[id]
		for _, k := range kinds(old, had, now, has) {
			events = append(events, Event{Kind: k, Pod: about, Container: id})
		}
	}
	for _, c := range slices.Backward(was.Containers) {
		add(c.ID)
	}
	for _, s := range slices.Backward(was.Sandboxes) {
		add(s.ID)
	}
	for _, s := range slices.Backward(is.Sandboxes) {
		if _, known := before[s.ID]; !known {
			add(s.ID)
		}
	}
	for _, c := range slices.Backward(is.Containers) {
		if _, known := before[c.ID]; !known {
			add(c.ID)
		}
	}
	return events
}

// ref names a pod. One of which nothing exists any more may not know its name.
func ref(was, is runtime.Pod) runtime.PodRef {
	if is.Name == "" && was.UID != "" {
		return was.PodRef
	}
	return is.PodRef
}

// kinds is what the way from one state to another is called.
func kinds(was runtime.State, had bool, is runtime.State, has bool) []Kind {
	switch {
	case had && has && was == is:
		return nil
	case !has && was == runtime.Exited:
		return []Kind{Removed}
	case !has:
		return []Kind{Died, Removed}
	case is == runtime.Running:
		return []Kind{Started}
	case is == runtime.Exited:
		return []Kind{Died}
	}
	return []Kind{Changed}
}

// same is the quick answer for pods in which nothing happened.
func same(was, is *runtime.Pod) bool {
	return slices.EqualFunc(was.Containers, is.Containers, func(a, b runtime.Container) bool {
		return a.ID == b.ID && a.State == b.State
	}) && slices.EqualFunc(was.Sandboxes, is.Sandboxes, func(a, b runtime.Sandbox) bool {
		return a.ID == b.ID && a.Ready == b.Ready
	})
}

// states of all containers and sandboxes of a pod. Created is no state of its own: nothing is to be done about it.
func states(p runtime.Pod) map[string]runtime.State {
	all := make(map[string]runtime.State, len(p.Containers)+len(p.Sandboxes))
	for _, c := range p.Containers {
		all[c.ID] = c.State
		if c.State == runtime.Created {
			all[c.ID] = runtime.Unknown
		}
	}
	for _, s := range p.Sandboxes {
		all[s.ID] = runtime.Exited
		if s.Ready {
			all[s.ID] = runtime.Running
		}
	}
	return all
}
