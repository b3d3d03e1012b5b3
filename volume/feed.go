package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// patience is how long Mount waits for answers that are mostly there at once; askFor ends a question nobody answers.
const (
	patience = 250 * time.Millisecond
	askFor   = 10 * time.Second
)

// feed is what the volumes of one pod are made of that comes from the API server. The Manager's mutex guards it.
type feed struct {
	pod *v1.Pod // as it was mounted last; only whose turn it is changes it

	answers map[need]*answer
	news    chan struct{} // closed at the next answer
	waiting bool          // the pod's latest Mount could not go on
	changed bool          // there are answers that no Mount has seen
	timer   *time.Timer   // asks again; nil: nothing is due

	queued, running, again, closed bool
}

// answer is what is known of a need. It is open with neither value nor error.
type answer struct {
	value any
	err   error // why there is no value, or not the newest

	ask      bool      // it is to be asked
	told     bool      // err was the result of a Mount
	asked    time.Time // when it was last answered
	due      time.Time // when to ask again; zero: when something happens
	failures int
	stop     func() // ends following; nil: not followed

	issuing  issuing // of a certificate
	validity validity
}

func (a *answer) open() bool { return a.value == nil && a.err == nil }

// take notes an answer. fresh is false when it is what it was before.
func (a *answer) take(n need, value any, expires time.Time, err error, now time.Time) (fresh bool) {
	a.asked, a.due = now, time.Time{}
	switch {
	case err == nil:
		fresh = a.value != value || a.err != nil
		a.value, a.err, a.failures = value, nil, 0
		switch n.kind {
		case kindCertificate:
			c, _ := value.(*credential)
			a.validity = validity{renew: expires, ends: c.ends}
			if soonest := now.Add(leastLife); expires.Before(soonest) { // a clock is wrong
				expires = soonest
			}
			a.due = expires.Add(time.Duration(spread(renewMost)))
		case kindToken:
			a.due = now.Add(renewAfter(expires.Sub(now), time.Duration(n.seconds)*time.Second, rand.Float64()))
		}
		return fresh
	case errors.Is(err, runtime.ErrInProgress):
		a.due = now.Add(backoff(a.failures, rand.Float64()))
		a.failures++
		return false
	case errors.Is(err, runtime.ErrNotFound) && n.followed(): // it is followed
		a.value, a.failures = nil, 0
	default:
		a.due = now.Add(backoff(a.failures, rand.Float64()))
		a.failures++
	}
	fresh = a.err == nil || a.err.Error() != err.Error()
	a.err = err
	if fresh {
		a.told = false
	}
	return fresh
}

const (
	leeway    = time.Minute     // how far clocks may be apart: a token from so far in the future is still good
	leastLife = 5 * time.Minute // of a token or a certificate, whatever clocks say
)

// renewAfter is how long a token is used before it is asked for anew: four fifths of its life, a day at most, and up to ten
// seconds less. What is left by the clock counts, unless the clock is too far off: no token lives less than ten minutes. One
// that lives longer than it should comes from a clock that is ahead, and is good for nothing once that is put right.
func renewAfter(left, wanted time.Duration, spread float64) time.Duration {
	const day, jitter = 24 * time.Hour, float64(10 * time.Second)
	life := min(left, wanted)
	switch {
	case left < leastLife:
		life = wanted
	case left > wanted+leeway:
		life = leastLife
	}
	return max(0, min(life/5*4, day)-time.Duration(spread*jitter))
}

// stepped says that by the clock on the wall an answer is from the future, or should have been asked for anew long ago: the
// clock was set, or the machine slept. Timers do not notice.
func stepped(asked, due, now time.Time) bool {
	asked, due, now = asked.Round(0), due.Round(0), now.Round(0)
	return !due.IsZero() && (now.Before(asked.Add(-leeway)) || now.After(due.Add(leeway)))
}

// backoff is the wait after some failures: a second, doubled up to a minute, and spread by half.
func backoff(failures int, spread float64) time.Duration {
	wait := min(time.Second<<min(failures, 6), time.Minute)
	return wait + time.Duration(spread*float64(wait)/2)
}

// supply has all asked that the pod's volumes need, and waits a moment for answers. What it returns is what is known by then.
func (m *Manager) supply(ctx context.Context, p *pod, pod *v1.Pod, used map[string]bool) map[need]answer {
	needs := m.needs(pod, used)
	if len(needs) == 0 {
		return nil
	}
	if p.feed == nil {
		p.feed = &feed{answers: map[need]*answer{}, news: make(chan struct{})}
	}
	f := p.feed
	m.mu.Lock()
	f.pod = pod
	m.mu.Unlock()
	m.follow(f, needs)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for n, a := range f.answers {
		switch {
		case a.err != nil && a.told && a.value == nil:
			a.err, a.ask = nil, true
		case a.open(), n.followed() && now.Sub(a.asked) >= relook && !immutable(a.value):
			a.ask = true
		case !n.followed() && a.err == nil && stepped(a.asked, a.due, now):
			m.log.Info("the clock was set, or stood still; what depends on time is asked for anew", "pod", pod.Name, "namespace", pod.Namespace, "uid", pod.UID, "what", n)
			a.ask = true
		}
	}
	m.want(f)
	m.await(ctx, f)
	f.changed = false
	for _, a := range f.answers {
		a.told = a.err != nil
	}
	return f.snapshot()
}

func (f *feed) snapshot() map[need]answer {
	out := make(map[need]answer, len(f.answers))
	for n, a := range f.answers {
		out[n] = *a
	}
	return out
}

// waits notes whether the pod is to be woken at the next answer.
func (m *Manager) waits(p *pod, yes bool) {
	if p.feed == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.feed.waiting = yes
}

// relook is the age at which a Mount looks again at an object nobody says anything new about.
const relook = time.Minute

// needs is all that is needed and can be asked for.
func (m *Manager) needs(pod *v1.Pod, used map[string]bool) (out []need) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !used[v.Name] {
			continue
		}
		for _, n := range needsOf(v) {
			if m.canAsk(n) {
				out = append(out, n)
			}
		}
	}
	return out
}

// follow makes a place for each answer, and has objects followed from before they are first asked for.
func (m *Manager) follow(f *feed, needs []need) {
	for _, n := range needs {
		m.mu.Lock()
		a, known := f.answers[n]
		if !known {
			a = &answer{}
			f.answers[n] = a
		}
		m.mu.Unlock()
		if known || !n.followed() {
			continue
		}
		namespace, name := f.pod.Namespace, n.name
		if n.kind == kindBundle {
			namespace, name = "", ""
		}
		stop := m.cfg.Objects.Follow(n.kind, namespace, name, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			a.ask = true
			m.want(f)
		})
		m.mu.Lock()
		a.stop = stop
		m.mu.Unlock()
	}
}

// await waits while something is open, but not for long. The mutex is held, and given up meanwhile.
func (m *Manager) await(ctx context.Context, f *feed) {
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for slices.ContainsFunc(slices.Collect(maps.Values(f.answers)), (*answer).open) {
		news := f.news
		m.mu.Unlock()
		over := false
		select {
		case <-news:
		case <-enough.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		m.mu.Lock()
		if over {
			return
		}
	}
}

// answer is what a volume is made with: a value, if need be the last known, or why there is none.
func (r request) answer(n need) (any, error) {
	a, asked := r.answers[n]
	switch {
	case !asked && n.kind == kindCertificate:
		return nil, errors.New("podCertificate needs an API server, which this agent has none of")
	case !asked && n.kind == kindToken:
		return nil, errors.New("serviceAccountToken needs an API server, which this agent has none of")
	case !asked:
		return nil, fmt.Errorf("%s needs an API server, which this agent has none of", lowerFirst(n.kind))
	case a.value != nil:
		return a.value, nil
	}
	return nil, cmp.Or(a.err, fmt.Errorf("wait for %v: %w", n, runtime.ErrInProgress))
}

// drop ends all that is done for a pod in the background.
func (m *Manager) drop(p *pod) {
	f := p.feed
	if f == nil {
		return
	}
	p.feed = nil
	var stops []func()
	m.mu.Lock()
	f.closed = true
	f.rest()
	for _, a := range f.answers {
		if a.stop != nil {
			stops = append(stops, a.stop)
			a.stop = nil
		}
	}
	m.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

func (f *feed) rest() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}
