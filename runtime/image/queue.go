package image

import (
	"context"
	"math"
	"sync"
	"time"
)

// turns lets one at a time have a name.
type turns struct {
	mu    sync.Mutex // guards taken and the users in it
	taken map[string]*turn
}

type turn struct {
	token chan struct{} // who sent has it
	users int
}

// take waits for the name to be free, in order.
func (t *turns) take(ctx context.Context, name string) (done func(), err error) {
	t.mu.Lock()
	if t.taken == nil {
		t.taken = map[string]*turn{}
	}
	one := t.taken[name]
	if one == nil {
		one = &turn{token: make(chan struct{}, 1)}
		t.taken[name] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.taken, name)
		}
	}
	select {
	case one.token <- struct{}{}:
		return func() { <-one.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// limiter is a bucket of permissions that fills at a rate.
type limiter struct {
	rate, most float64

	mu   sync.Mutex // guards the rest
	left float64
	at   time.Time
}

func newLimiter(rate float64, burst int) *limiter {
	most := math.Max(1, float64(burst))
	return &limiter{rate: rate, most: most, left: most}
}

// allow takes a permission if there is one.
func (l *limiter) allow(now time.Time) bool {
	if l.rate == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.IsZero() {
		l.left = math.Min(l.most, l.left+math.Max(0, now.Sub(l.at).Seconds())*l.rate)
	}
	l.at = now
	if l.left < 1 {
		return false
	}
	l.left--
	return true
}
