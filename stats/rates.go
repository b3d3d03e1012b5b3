package stats

import (
	"sync"
	"time"
)

const (
	rateAfter  = 10 * time.Second // a reading that old is replaced by any look
	rateForget = 10 * time.Minute // what was not seen for that long is gone
)

// rates makes CPU use per second of readings of CPU time.
type rates struct {
	mu   sync.Mutex // guards the readings
	last map[string]reading
}

type reading struct {
	at    time.Time
	nanos int64
	rate  *uint64 // nil: it takes two readings
	seen  time.Time
}

// of says how many billionths of a CPU something uses. nil: not known yet. advance makes this reading the one the next is
// compared with.
func (r *rates) of(id string, now, at time.Time, nanos int64, advance bool) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]reading{}
	}
	last, known := r.last[id]
	last.seen = now
	span := at.Sub(last.at)
	switch {
	case !known || nanos < last.nanos || span < 0: // new, or started anew
		last = reading{at: at, nanos: nanos, seen: now}
	case span > 0 && (advance || span >= rateAfter):
		rate := uint64(float64(nanos-last.nanos) / span.Seconds())
		last = reading{at: at, nanos: nanos, rate: &rate, seen: now}
	}
	r.last[id] = last
	return last.rate
}

// forget drops what was not seen for long.
func (r *rates) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, last := range r.last {
		if now.Sub(last.seen) > rateForget {
			delete(r.last, id)
		}
	}
}
