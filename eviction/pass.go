package eviction

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// state is what is remembered from one pass to the next. The zero value is that before the first.
type state struct {
	since  map[identity]time.Time             // thresholds that are met: when that was seen first
	seen   map[v1.NodeConditionType]time.Time // when a threshold with that condition was last met
	acting []Threshold                        // those whose grace was over
	at     map[Signal]time.Time               // when the levels were measured
	ended  time.Time                          // when the last pod was given up waiting for or gone: older figures still have it
}

// identity tells thresholds of one signal apart.
type identity struct {
	signal Signal
	grace  time.Duration
	value  string
}

func (t Threshold) identity() identity { return identity{t.Signal, t.Grace, t.Value.String()} }

// finding is what a pass says about the node.
type finding struct {
	pressure []v1.NodeConditionType // in a fixed order
	due      []Threshold            // those for which something is to be done now, the most urgent first
	met      []Threshold            // all that are met, whatever their grace
}

// assess compares an observation with the thresholds. It changes nothing of s.
func (s state) assess(thresholds []Threshold, o Observation, hold time.Duration, now time.Time) (state, finding) {
	var f finding
	f.met = met(thresholds, o, false)
	for _, t := range met(s.acting, o, true) { // until enough is reclaimed
		if !slices.ContainsFunc(f.met, func(m Threshold) bool { return m.identity() == t.identity() }) {
			f.met = append(f.met, t)
		}
	}
	next := state{since: map[identity]time.Time{}, seen: map[v1.NodeConditionType]time.Time{}, at: map[Signal]time.Time{}, ended: s.ended}
	maps.Copy(next.seen, s.seen)
	for _, t := range f.met {
		since, ok := s.since[t.identity()]
		if !ok {
			since = now
		}
		next.since[t.identity()] = since
		k, _ := t.Signal.kind()
		next.seen[k.condition] = now
		if now.Sub(since) >= t.Grace {
			next.acting = append(next.acting, t)
		}
	}
	for _, c := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		switch at, ok := next.seen[c]; {
		case ok && (at.Equal(now) || now.Sub(at) < hold):
			f.pressure = append(f.pressure, c)
		case ok:
			delete(next.seen, c)
		}
	}
	for signal, l := range o.Levels {
		next.at[signal] = l.At
	}
	for _, t := range next.acting {
		if at := o.Levels[t.Signal].At; at.IsZero() || at.After(s.at[t.Signal]) && !at.Before(s.ended) {
			f.due = append(f.due, t)
		}
	}
	urgentFirst(f.due)
	return next, f
}

// met are the thresholds that are, with reclaim those that are or whose minimum reclaim is not reached.
func met(thresholds []Threshold, o Observation, reclaim bool) []Threshold {
	var out []Threshold
	for _, t := range thresholds {
		if l, ok := o.Levels[t.Signal]; ok && t.met(l, reclaim) {
			out = append(out, t)
		}
	}
	return out
}

// cleaning says what can be removed before a pod is ended for a signal.
func cleaning(s Signal, l Layout) (dead, images bool) {
	k, _ := s.kind()
	switch {
	case k.place == none, l == ImagesApart && k.place == nodeFs:
		return false, false
	case l == Split:
		return k.place != imageFs, k.place == imageFs
	}
	return true, true
}

// marks are how much memory must be in use for the next threshold of each signal to be met, in bytes charged to its cgroup.
func marks(thresholds []Threshold, o Observation) map[Signal]int64 {
	out := map[Signal]int64{}
	for _, t := range thresholds {
		l, ok := o.Levels[t.Signal]
		if t.Signal.resource() != v1.ResourceMemory || !ok || l.Used == 0 || t.met(l, false) {
			continue
		}
		mark := l.Used + l.Available - t.Value.of(l.Capacity)
		if was, ok := out[t.Signal]; !ok || mark < was {
			out[t.Signal] = mark
		}
	}
	return out
}

// last is how much memory must be in use for half of what a hard threshold keeps free to be gone too; 0: that is not known, or
// the threshold is not about memory.
func (t Threshold) last(o Observation) int64 {
	l := o.Levels[t.Signal]
	if !t.hard() || t.Signal.resource() != v1.ResourceMemory || l.Used == 0 {
		return 0
	}
	return l.Used + l.Available - t.Value.of(l.Capacity)/2
}
