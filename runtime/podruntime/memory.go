package podruntime

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// memory is what a Runtime knows of pods beyond what the engine shows. It does not outlive the process: after a restart
// a crashed container starts once without waiting.
type memory struct {
	mu   sync.Mutex // guards the rest
	pods map[types.UID]*remembered
	turn uint64 // that was given last
}

type remembered struct {
	backoff map[string]plan.Backoff    // by container name
	waiting map[string]runtime.Waiting // by container name
	gates   map[string]gate            // by container name; "" is the sandbox
	room    uint64                     // fingerprint of the sizes its cgroup has; 0: not known
	bare    bool                       // its cgroup was removed, and not made again since
	done    map[deed]bool              // what is done once for a container instance
	noticed map[string]time.Time       // by ID of an instance: when it was first seen to have ended
	ends    map[string]time.Time       // by ID of an instance that is being stopped: when its time is over
	follows map[string]followed        // by container name
	numbers map[string]uint32          // by container name: the instance that was to be made last, which people may have been told of; "" is the sandbox
	turn    uint64                     // of its starts; 0: none is given
}

// deed is something done once for a container instance, or for a sandbox.
type deed struct{ what, id string }

// What is done once.
const (
	preStopRun  = "its preStop hook has run"
	killingTold = "its end was told"

	sandboxStopped = "it has given back its network"
)

// gate keeps something that failed from being tried at every wake. It opens at its time, or when the spec changes.
type gate struct {
	since, shut, until time.Time // first, last, and when it opens
	spec               uint64
	reserved           time.Time // since when it is for a name that the runtime has reserved, and for nothing else
	given              int       // names that were given up
}

func (m *memory) with(uid types.UID, f func(p *remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		if m.pods == nil {
			m.pods = map[types.UID]*remembered{}
		}
		p = &remembered{backoff: map[string]plan.Backoff{}, gates: map[string]gate{}, done: map[deed]bool{}, noticed: map[string]time.Time{}, ends: map[string]time.Time{}}
		m.pods[uid] = p
	}
	f(p)
}

// turnOf is the number of a pod among those that start, the same until it is complete.
func (m *memory) turnOf(uid types.UID) (number uint64) {
	m.with(uid, func(p *remembered) {
		if p.turn == 0 {
			m.turn++
			p.turn = m.turn
		}
		number = p.turn
	})
	return number
}

// complete has the pod's next start be behind all that wait by then.
func (m *memory) complete(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil {
		p.turn = 0
	}
}

func (m *memory) forget(uid types.UID) {
	m.unfollowAll(uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}

// known are the pods something is remembered of.
func (m *memory) known() (out []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.pods {
		out = append(out, uid)
	}
	return out
}

func (m *memory) waiting(uid types.UID) map[string]runtime.Waiting {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil && len(p.waiting) > 0 {
		return maps.Clone(p.waiting)
	}
	return nil
}

func (m *memory) backoff(uid types.UID) (out map[string]plan.Backoff) {
	m.with(uid, func(p *remembered) { out = maps.Clone(p.backoff) })
	return out
}

func (m *memory) remember(uid types.UID, container string, b plan.Backoff) {
	if b.Updated.IsZero() {
		return
	}
	m.with(uid, func(p *remembered) { p.backoff[container] = b })
}

// set replaces the reason one container waits; nil clears it. It says whether that changes what people see.
func (m *memory) set(uid types.UID, container string, w *runtime.Waiting) (changed bool) {
	m.with(uid, func(p *remembered) {
		old, had := p.waiting[container]
		if w == nil {
			delete(p.waiting, container)
			changed = had
			return
		}
		if p.waiting == nil {
			p.waiting = map[string]runtime.Waiting{}
		}
		p.waiting[container] = *w
		changed = old.Reason != w.Reason || old.Message != w.Message
	})
	return changed
}

func (m *memory) shut(uid types.UID, what string, spec uint64, now, until time.Time) {
	m.with(uid, func(p *remembered) {
		p.gates[what] = gate{since: p.since(what, spec, now), shut: now, until: until, spec: spec, reserved: p.gates[what].reserved, given: p.gates[what].given}
	})
}

// taken notes whether a name was reserved that was asked for just now. One that stays so for good is given up: the next number is
// taken, and all begins anew.
func (m *memory) taken(uid types.UID, what string, yes bool, now time.Time) {
	m.with(uid, func(p *remembered) {
		g := p.gates[what]
		switch {
		case !yes:
			g.reserved = time.Time{}
		case g.reserved.IsZero():
			g.reserved = now
		case now.Sub(g.reserved) >= reservedFor<<min(g.given, 6):
			g.since, g.reserved = now, time.Time{}
			g.given++
			p.numbers = with(p.numbers, what, p.numbers[what]+1)
		}
		p.gates[what] = g
	})
}

// number is that of the instance to be made, at least least.
func (m *memory) number(uid types.UID, what string, least uint32) (n uint32) {
	m.with(uid, func(p *remembered) {
		n = max(least, p.numbers[what])
		p.numbers = with(p.numbers, what, n)
	})
	return n
}

// failing is since when something fails that has just failed.
func (m *memory) failing(uid types.UID, what string, spec uint64, now time.Time) (since time.Time) {
	m.with(uid, func(p *remembered) { since = p.since(what, spec, now) })
	return since
}

func (p *remembered) since(what string, spec uint64, now time.Time) time.Time {
	if g, ok := p.gates[what]; ok && g.spec == spec {
		return g.since
	}
	return now
}

// works forgets that something failed.
func (m *memory) works(uid types.UID, what string) {
	m.with(uid, func(p *remembered) { delete(p.gates, what) })
}

// gate says until when something must not be tried; zero: it may. What it depends on is asked only of what has failed.
func (m *memory) gate(uid types.UID, what string, spec func() uint64, now time.Time) (until time.Time) {
	m.with(uid, func(p *remembered) {
		switch g, ok := p.gates[what]; {
		case ok && g.spec != spec():
			delete(p.gates, what)
		case g.until.After(now):
			until = g.until
		}
	})
	return until
}

// once says whether something is still to be done for a container instance, and notes that it is done now.
func (m *memory) once(uid types.UID, what, id string) (first bool) {
	m.with(uid, func(p *remembered) {
		first = !p.done[deed{what, id}]
		p.done[deed{what, id}] = true
	})
	return first
}

// undo notes that something has not been done after all.
func (m *memory) undo(uid types.UID, what, id string) {
	m.with(uid, func(p *remembered) { delete(p.done, deed{what, id}) })
}

// did says that something was done once.
func (m *memory) did(uid types.UID, what, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	return p != nil && p.done[deed{what, id}]
}

// notice is when each instance that has ended was first seen so.
func (m *memory) notice(seen runtime.Pod, now time.Time) (out map[string]time.Time) {
	m.with(seen.UID, func(p *remembered) {
		for _, c := range seen.Containers {
			if _, known := p.noticed[c.ID]; !known && c.State == runtime.Exited {
				p.noticed[c.ID] = now
			}
		}
		out = maps.Clone(p.noticed)
	})
	return out
}

// end is when the time of an instance is over that is being stopped: who asks again gives it no more of it.
func (m *memory) end(uid types.UID, id string, at time.Time) (end time.Time) {
	m.with(uid, func(p *remembered) {
		if earlier, known := p.ends[id]; known && earlier.Before(at) {
			at = earlier
		}
		p.ends[id] = at
	})
	return at
}

// trim forgets what it knows of instances that are no more, so that a pod that crashes for years costs nothing.
func (m *memory) trim(seen runtime.Pod) {
	exists := make(map[string]bool, len(seen.Containers))
	for _, c := range seen.Containers {
		exists[c.ID] = true
	}
	m.with(seen.UID, func(p *remembered) {
		maps.DeleteFunc(p.done, func(d deed, _ bool) bool { return !exists[d.id] })
		maps.DeleteFunc(p.noticed, func(id string, _ time.Time) bool { return !exists[id] })
		maps.DeleteFunc(p.ends, func(id string, _ time.Time) bool { return !exists[id] })
	})
}

// fingerprint changes when a person changed the spec.
func fingerprint(v any) uint64 {
	b, _ := json.Marshal(v) // API types: cannot fail
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

func specOf(pod *v1.Pod, container string) uint64 {
	if container == "" {
		return fingerprint(pod.Spec)
	}
	c, _ := plan.Find(pod, container)
	return fingerprint(c)
}
