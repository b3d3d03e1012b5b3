package volume

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/observe"
)

// How much is done at a time: pods, and questions of one pod.
const (
	podsAtATime = 16
	asksAtATime = 4
)

// Run asks for what volumes are made of and keeps files up to date, a bounded number of pods at a time. Without it, volumes
// with content from an API server stay in progress. It returns nil once ctx has ended and all that it began is over.
func (m *Manager) Run(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(podsAtATime)
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-m.ready:
		}
		for _, f := range m.take() {
			g.Go(func() error { m.refresh(ctx, f); return nil })
		}
	}
}

// want has the questions of a pod asked. The mutex is held.
func (m *Manager) want(f *feed) {
	switch {
	case f.closed || f.queued:
		return
	case f.running:
		f.again = true
		return
	}
	f.queued = true
	m.queue = append(m.queue, f)
	select {
	case m.ready <- struct{}{}:
	default: // Run will look
	}
}

func (m *Manager) take() []*feed {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch := m.queue
	m.queue = nil
	for _, f := range batch {
		f.queued, f.running = false, true
	}
	return batch
}

// refresh asks what is to be asked for one pod, and sees that the answers get to it.
func (m *Manager) refresh(ctx context.Context, f *feed) {
	m.mu.Lock()
	asks := map[need]*issuing{}
	for n, a := range f.answers {
		if a.ask {
			a.ask = false
			asks[n] = &a.issuing
		}
	}
	pod := f.pod
	m.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(asksAtATime)
	for n, issuing := range asks {
		g.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, askFor)
			defer cancel()
			value, expires, err := m.ask(limited, pod, n, issuing)
			if ctx.Err() == nil {
				m.store(f, n, value, expires, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	m.pass(ctx, f)
	m.mu.Lock()
	defer m.mu.Unlock()
	f.running = false
	if f.again {
		f.again = false
		m.want(f)
	}
	m.schedule(f)
}

// store notes an answer. What cannot change is not followed any longer.
func (m *Manager) store(f *feed, n need, value any, expires time.Time, err error) {
	m.mu.Lock()
	a := f.answers[n]
	now := time.Now()
	fresh := a.take(n, value, expires, err, now)
	late := observe.Event{About: observe.Pod(f.pod.Namespace, f.pod.Name, string(f.pod.UID)), Warning: true}
	if err != nil {
		late.Reason, late.Message = a.validity.late(n, err, now)
	}
	f.changed = f.changed || fresh
	if fresh && err != nil && a.value != nil { // without a value it is the volume's error
		m.log.Warn("the last known is used on, and asked for again", "pod", f.pod.Name, "namespace", f.pod.Namespace, "uid", f.pod.UID, "err", err)
	}
	close(f.news)
	f.news = make(chan struct{})
	var stop func()
	if immutable(a.value) {
		stop, a.stop = a.stop, nil
	}
	m.mu.Unlock()
	if late.Reason != "" {
		m.cfg.Observe.Event(late)
	}
	if stop != nil {
		stop()
	}
}

// pass gets what is new to the pod: one that waits is woken, and the files of one that runs are written.
func (m *Manager) pass(ctx context.Context, f *feed) {
	m.mu.Lock()
	changed, uid := f.changed, f.pod.UID
	m.mu.Unlock()
	if !changed {
		return
	}
	p, unlock, err := m.lock(ctx, uid)
	if err != nil {
		return
	}
	defer unlock()
	if p.feed != f {
		return
	}
	m.mu.Lock()
	changed, waiting := f.changed, f.waiting
	f.changed, f.waiting = false, waiting && !changed
	answers := f.snapshot()
	m.mu.Unlock()
	switch {
	case !changed: // a Mount that was under way has seen all
	case waiting:
		m.cfg.Changed(uid)
	default:
		m.rewrite(ctx, p, answers)
	}
}

// rewrite brings the files of a mounted pod up to date.
func (m *Manager) rewrite(ctx context.Context, p *pod, answers map[need]answer) {
	pod := p.feed.pod
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if _, mounted := p.volumes[v.Name]; !mounted || len(needsOf(v)) == 0 {
			continue
		}
		r := m.request(p, pod, v, answers)
		if _, err := m.mount(ctx, r); err != nil {
			m.complain(r, err)
		}
	}
}

// schedule has the pod's questions asked again when they are due. The mutex is held.
func (m *Manager) schedule(f *feed) {
	f.rest()
	var next time.Time
	for _, a := range f.answers {
		if !a.due.IsZero() && (next.IsZero() || a.due.Before(next)) {
			next = a.due
		}
	}
	if next.IsZero() || f.closed {
		return
	}
	f.timer = time.AfterFunc(time.Until(next), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		now := time.Now()
		for _, a := range f.answers {
			if !a.due.IsZero() && !a.due.After(now) {
				a.ask, a.due = true, time.Time{}
			}
		}
		m.want(f)
	})
}
