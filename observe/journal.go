package observe

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Journal remembers the latest steps and events of each pod, for a page or command that answers "what is the matter
// with this pod". It is a Steps and an Events; the zero value is ready for use.
//
// It holds a bounded amount: of each pod the latest PerPod steps and PerPod different events, of the pods those
// something happened to last. All methods are safe for concurrent use; set the fields before the first call.
type Journal struct {
	PerPod int // steps, and events, kept of one pod; 0 means 64
	Pods   int // pods kept; 0 means 1000

	mu   sync.Mutex // guards the rest and all entries
	pods map[string]*history
}

// history is what is kept of one object. Steps that repeat every minute do not drive out events of an hour ago.
type history struct {
	steps, events []*Entry
	touched       time.Time
}

// Entry is one line of a timeline: a step, under way or done, or an event and its repetitions. It is a plain value
// that goes through JSON and back unchanged; Duration is then in nanoseconds.
type Entry struct {
	Pod Ref       `json:"pod"`
	At  time.Time `json:"at"` // begin of the step; the latest time of the event

	// Of a step.
	Step     string            `json:"step,omitempty"`
	Running  bool              `json:"running,omitempty"`  // not ended yet
	Duration time.Duration     `json:"duration,omitempty"` // until its end, or until Timeline was called
	Attrs    map[string]string `json:"attrs,omitempty"`    // of Begin and Note, the latest value of each key; an event's annotations
	Error    string            `json:"error,omitempty"`

	// Of an event.
	Event   bool      `json:"event,omitempty"`
	Warning bool      `json:"warning,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Count   int       `json:"count,omitempty"` // how often it was told: same object, field, reason and message
	First   time.Time `json:"first,omitzero"`  // when it was told first
}

// Event keeps an event. One that was kept before moves to the end of the timeline and counts one more.
func (j *Journal) Event(e Event) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.touch(e.About.UID, now)
	entry := &Entry{
		Pod: e.About, Event: true, Warning: e.Warning, Reason: e.Reason, Message: e.Message,
		Attrs: maps.Clone(e.Annotations), First: now,
	}
	if i := slices.IndexFunc(h.events, entry.repeats); i >= 0 {
		entry = h.events[i]
		h.events = slices.Delete(h.events, i, i+1)
	}
	entry.At = now
	entry.Count++
	h.events = keep(h.events, entry, cmp.Or(j.PerPod, 64))
}

func (e *Entry) repeats(o *Entry) bool {
	return e.Pod == o.Pod && e.Warning == o.Warning && e.Reason == o.Reason && e.Message == o.Message
}

// Begin keeps a step that starts now.
func (j *Journal) Begin(ctx context.Context, pod Ref, step string, attrs ...slog.Attr) (context.Context, Step) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.touch(pod.UID, now)
	e := &Entry{Pod: pod, At: now, Step: step, Running: true}
	e.note(attrs)
	h.steps = keep(h.steps, e, cmp.Or(j.PerPod, 64))
	return ctx, &journaled{j, e}
}

// Timeline answers what is kept under that UID, oldest first. The entries are the caller's.
func (j *Journal) Timeline(uid string) []Entry {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.pods[uid]
	if h == nil {
		return nil
	}
	out := make([]Entry, 0, len(h.steps)+len(h.events))
	for _, e := range slices.Concat(h.steps, h.events) {
		c := *e
		c.Attrs = maps.Clone(e.Attrs)
		if c.Running {
			c.Duration = now.Sub(c.At)
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return a.At.Compare(b.At) })
	return out
}

// Forget drops what is kept under that UID. Steps of it that are under way leave no trace.
func (j *Journal) Forget(uid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.pods, uid)
}

// touch finds or makes the history under that UID, and makes room for it.
func (j *Journal) touch(uid string, now time.Time) *history {
	h := j.pods[uid]
	if h == nil {
		if j.pods == nil {
			j.pods = map[string]*history{}
		}
		for len(j.pods) >= cmp.Or(j.Pods, 1000) {
			delete(j.pods, j.quietest())
		}
		h = new(history)
		j.pods[uid] = h
	}
	h.touched = now
	return h
}

// quietest is the UID that nothing happened to for the longest time.
func (j *Journal) quietest() (uid string) {
	var since time.Time
	for u, h := range j.pods {
		if uid == "" || h.touched.Before(since) {
			uid, since = u, h.touched
		}
	}
	return uid
}

func keep(list []*Entry, e *Entry, most int) []*Entry {
	if len(list) >= most {
		list = slices.Delete(list, 0, len(list)-most+1)
	}
	return append(list, e)
}

func (e *Entry) note(attrs []slog.Attr) {
	for _, a := range attrs {
		if a.Key == "" {
			continue
		}
		if e.Attrs == nil {
			e.Attrs = map[string]string{}
		}
		e.Attrs[a.Key] = a.Value.Resolve().String()
	}
}

// journaled is a step that a Journal keeps.
type journaled struct {
	j *Journal
	e *Entry
}

func (s *journaled) Note(attrs ...slog.Attr) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	s.e.note(attrs)
}

func (s *journaled) End(err error) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	if !s.e.Running {
		return
	}
	s.e.Running = false
	s.e.Duration = time.Since(s.e.At)
	if err != nil {
		s.e.Error = err.Error()
	}
}
