package image

import (
	"sync"
	"time"
)

// A pull that failed waits pullFirst after the failure, then twice as long each time up to pullMax. One that has not
// failed for pullReset begins anew.
const (
	pullFirst = 10 * time.Second
	pullMax   = 300 * time.Second
	pullReset = 600 * time.Second
)

// backoff remembers failed pulls by pod and image.
type backoff struct {
	mu      sync.Mutex // guards entries
	entries map[string]entry
}

type entry struct {
	delay time.Duration
	at    time.Time
	err   error
}

func newBackoff() *backoff { return &backoff{entries: map[string]entry{}} }

// due says why and until when a pull has to wait; zero: not at all.
func (b *backoff) due(key string, now time.Time) (until time.Time, last error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok || !e.at.Add(e.delay).After(now) {
		return time.Time{}, nil
	}
	return e.at.Add(e.delay), e.err
}

func (b *backoff) failed(key string, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	switch {
	case !ok || now.Sub(e.at) > pullReset:
		e.delay = pullFirst
	default:
		e.delay = min(2*e.delay, pullMax)
	}
	e.at, e.err = now, err
	b.entries[key] = e
	for k, old := range b.entries { // images nobody asks for any more
		if now.Sub(old.at) > 2*pullReset {
			delete(b.entries, k)
		}
	}
}

func (b *backoff) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, key)
}
