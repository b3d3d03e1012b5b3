package manager

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/podprobe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const longestSpread = 10 * time.Second

// watch is one pod with probes.
type watch struct {
	pod       *v1.Pod
	seen      time.Time // of the newest look
	ips       []string
	ending    bool
	instances map[string]*instance // by container name
	results   runtime.ProbeResults // never changed once made; nil: to be made anew
	series    map[series]struct{}  // metric series to forget
}

// instance is one container that has not ended.
type instance struct {
	of      *watch
	spec    *v1.Container // as it was when the instance was met first
	path    string
	id      string
	started time.Time
	running bool
	result  runtime.ProbeResult
	probers []*prober
}

// prober is one probe of one instance.
type prober struct {
	of      *instance
	kind    kind
	spec    *v1.Probe
	history probe.History
	held    bool // it has decided for good
	job     *job // nil while it does not ask
}

type kind uint8

const (
	startup kind = iota
	liveness
	readiness
)

func (k kind) String() string { return [...]string{"Startup", "Liveness", "Readiness"}[k] }

func (k kind) spec(c *v1.Container) *v1.Probe {
	return [...]*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe}[k]
}

func (k kind) outcome(r *runtime.ProbeResult) *runtime.Outcome {
	return [...]*runtime.Outcome{&r.Startup, &r.Liveness, &r.Readiness}[k]
}

// look compares one container of the spec with its newest instance, nil when there is none.
func (m *Manager) look(w *watch, spec *v1.Container, path string, c *runtime.Container) {
	i := w.instances[spec.Name]
	if i != nil && (c == nil || c.ID != i.id || c.State == runtime.Exited) {
		m.drop(i)
		i = nil
	}
	switch {
	case c == nil:
		m.metrics.forget(w, spec.Name)
	case i != nil:
		i.running = c.State == runtime.Running
	case c.State == runtime.Running:
		i = m.meet(w, spec, path, c)
		w.instances[spec.Name], w.results = i, nil
		m.settle(i, !c.Started.IsZero() && c.Started.Before(m.start))
	}
}

// meet makes an instance with the results it has before any check.
func (m *Manager) meet(w *watch, spec *v1.Container, path string, c *runtime.Container) *instance {
	i := &instance{of: w, spec: spec, path: path, id: c.ID, started: c.Started, running: true}
	before := statusOf(w.pod, c.ID) // an ID met first that stands there was probed by another manager
	for _, k := range [...]kind{startup, liveness, readiness} {
		s := k.spec(spec)
		if s == nil || m.undecidable(s, spec) {
			continue
		}
		o := initial(k, before)
		*k.outcome(&i.result) = o
		i.probers = append(i.probers, &prober{of: i, kind: k, spec: s, held: k == startup && o == runtime.Passing})
	}
	return i
}

// initial is the result before any check, before being what was last reported of the same instance.
func initial(k kind, before *v1.ContainerStatus) runtime.Outcome {
	switch {
	case k == liveness:
		return runtime.Passing
	case k == readiness && before.Ready:
		return runtime.Passing
	case k == readiness:
		return runtime.Failing
	case before.Started != nil && *before.Started:
		return runtime.Passing
	}
	return runtime.Undecided
}

// statusOf is what the pod's status says of a container ID, which stands there behind a scheme.
func statusOf(pod *v1.Pod, id string) *v1.ContainerStatus {
	for _, all := range [...][]v1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range all {
			if _, known, ok := strings.Cut(all[i].ContainerID, "://"); ok && known == id {
				return &all[i]
			}
		}
	}
	return &v1.ContainerStatus{}
}

func (m *Manager) undecidable(p *v1.Probe, c *v1.Container) bool {
	if m.cfg.Check != nil {
		return false
	}
	_, err := podprobe.Check(p, m.podprobeTarget(Target{}, c))
	return errors.Is(err, podprobe.ErrUndecided)
}

// settle starts and stops the probers of an instance as they should be; spread delays those it starts.
func (m *Manager) settle(i *instance, spread bool) {
	for _, p := range i.probers {
		switch asks := p.asks(); {
		case asks && p.job == nil:
			at := firstCheck(i.started, time.Now(), podprobe.Delay(p.spec))
			if spread {
				at = at.Add(rand.N(min(podprobe.Period(p.spec), longestSpread)))
			}
			p.job = m.sched.add(at, podprobe.Period(p.spec), p.check(m))
		case !asks && p.job != nil:
			m.sched.stop(p.job)
			p.job = nil
		}
	}
}

// asks is the whole rule of when a probe is under way.
func (p *prober) asks() bool {
	i := p.of
	passed := i.spec.StartupProbe == nil || i.result.Startup == runtime.Passing
	switch {
	case !i.running || p.held:
		return false
	case p.kind == readiness:
		return passed
	case i.of.ending:
		return false
	}
	return p.kind == startup || passed
}

// firstCheck is when the initial delay is over. A clock that was set back since the start does not lengthen it.
func firstCheck(started, now time.Time, delay time.Duration) time.Time {
	age := time.Duration(0)
	if !started.IsZero() {
		age = max(0, now.Sub(started))
	}
	return now.Add(max(0, delay-age))
}

// decided takes over what a check has decided.
func (m *Manager) decided(p *prober, o runtime.Outcome) (changed bool) {
	i := p.of
	kept := p.kind.outcome(&i.result)
	changed = *kept != o
	*kept = o
	if changed {
		i.of.results = nil
	}
	p.held = p.kind == startup || p.kind == liveness && o == runtime.Failing
	m.settle(i, false)
	return changed
}

// drop ends the probes of an instance.
func (m *Manager) drop(i *instance) {
	i.running = false
	m.settle(i, false)
	delete(i.of.instances, i.spec.Name)
	i.of.results = nil
}
