package eviction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Pods are those that run, and the way to end one. syncloop.Roster is it. Methods may be called from several goroutines.
type Pods interface {
	Active() []*v1.Pod                                                      // those that hold resources
	Kill(ctx context.Context, uid types.UID, how runtime.Termination) error // returns when nothing of it runs
	Settled(ctx context.Context, uid types.UID) error                       // returns when the node has everything back
}

// Reclaimer removes what no pod needs, as much as there is. imagegc has two.
type Reclaimer interface {
	Reclaim(ctx context.Context) error
}

// Config describes a Manager. Source and Pods are required; every other field works at zero.
type Config struct {
	Source     Source
	Pods       Pods
	Thresholds []Threshold // none: only limits of local storage
	Closer     Source      // asked what pods use before one is chosen, where that takes longer; nil: what Source said will do

	Node   string                                    // name of the node, for events
	Layout func(ctx context.Context) (Layout, error) // asked until it answers once; nil: as observed
	Dead   Reclaimer                                 // of dead containers; nil: there is nothing to remove
	Images Reclaimer                                 // of images; nil: there is nothing to remove

	Notifier Notifier // tells at once of memory that runs short; nil: it is found out each Every
	// Kill ends all that runs of a pod without any grace. It is called for a pod that a hard threshold of memory ends, when half
	// of what was left then is gone too, as the Notifier says, or when the pod still runs ten seconds later. nil: the pod has its
	// second, and the kernel may be faster.
	Kill    func(types.UID) error
	Changed func() // Pressure answers something else now; must not block; nil: nobody needs to know at once

	Every         time.Duration // time between two passes; 0: ten seconds
	Transition    time.Duration // how long pressure is reported after it was last seen; 0: five minutes
	MaxGrace      time.Duration // the most a pod gets to end for a soft threshold; 0: one second; negative: what it asks for
	NoLocalLimits bool          // limits of emptyDirs and ephemeral storage are left to somebody else

	Observe observe.To // logger, events, metrics; zero is silent
}

const (
	hardGrace  = time.Second            // and the least for soft ones
	killWithin = 10 * time.Second       // longer for long grace periods
	settle     = 30 * time.Second       // until the node must have back what a pod held
	atLeast    = 500 * time.Millisecond // between two passes, however often the kernel calls
)

// Manager ends pods before the node runs out of something. All methods are safe for concurrent use; passes come one after
// another.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics

	pass    chan struct{} // who sends has it, and with it the next three
	state   state
	layout  *Layout
	unknown map[Signal]bool // signals whose absence was told

	mu       sync.Mutex // guards the rest
	pressure []v1.NodeConditionType
	marks    map[Signal]int64 // how much memory must be in use for a threshold to be met
	deaf     map[Signal]bool  // signals the notifier cannot tell of
}

// New makes a Manager at rest.
func New(cfg Config) (*Manager, error) {
	if cfg.Source == nil || cfg.Pods == nil {
		return nil, errors.New("eviction: Source and Pods are required")
	}
	for _, t := range cfg.Thresholds {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("eviction: %w", err)
		}
	}
	cfg.Every = cmp.Or(cfg.Every, 10*time.Second)
	cfg.Transition = cmp.Or(cfg.Transition, 5*time.Minute)
	if cfg.Every < 0 || cfg.Transition < 0 {
		return nil, fmt.Errorf("eviction: Every %v and Transition %v must not be negative", cfg.Every, cfg.Transition)
	}
	in := cfg.Observe.Instruments()
	return &Manager{
		cfg: cfg, log: cfg.Observe.Logger(), metrics: newMetrics(in), pass: make(chan struct{}, 1),
		unknown: map[Signal]bool{}, deaf: map[Signal]bool{},
	}, in.Err
}

// Run makes a pass at each interval, or sooner when the kernel says that memory runs short, and right after another that ended
// pods, once the node has back what they held. It returns nil once ctx has ended.
func (m *Manager) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		began := time.Now()
		ended, err := m.Check(ctx)
		if err != nil && ctx.Err() == nil {
			m.log.Warn("the node could not be looked at; next try at the next pass", "err", err)
		}
		if len(ended) == 0 {
			m.rest(ctx, began)
		}
	}
	return nil
}

// Check makes one pass and answers which pods it ended, at most one for pressure and every one that is above a limit of its
// own. It returns when they are gone and the node has back what they held, or took too long about it. One that Pods cannot end
// is not among them; the next pass tries again.
func (m *Manager) Check(ctx context.Context) ([]types.UID, error) {
	select {
	case m.pass <- struct{}{}:
		defer func() { <-m.pass }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if len(m.cfg.Thresholds) == 0 && m.cfg.NoLocalLimits {
		return nil, nil
	}
	pods := m.cfg.Pods.Active()
	o, err := m.observe(ctx)
	if err != nil {
		return nil, err
	}
	thresholds := withContainerFs(m.cfg.Thresholds, o.Layout)
	m.missing(thresholds, o)
	var f finding
	m.state, f = m.state.assess(thresholds, o, m.cfg.Transition, time.Now())
	m.tell(f.pressure)
	victims := m.overLimits(pods, o)
	if len(victims) == 0 && len(f.due) > 0 {
		victims, err = m.relieve(ctx, pods, o, f.due, thresholds)
	}
	return m.end(ctx, victims), err
}

// observe looks at the node.
func (m *Manager) observe(ctx context.Context) (Observation, error) {
	if m.layout == nil && m.cfg.Layout != nil {
		l, err := m.cfg.Layout(ctx)
		if err != nil {
			return Observation{}, fmt.Errorf("find out how the disks of the node are laid out: %w", err)
		}
		m.layout = &l
	}
	o, err := m.cfg.Source.Observe(ctx)
	if err != nil {
		return Observation{}, fmt.Errorf("observe the node: %w", err)
	}
	if m.layout != nil {
		o.Layout = *m.layout
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marks = marks(m.cfg.Thresholds, o)
	return o, nil
}

// missing warns once of thresholds that cannot be looked at.
func (m *Manager) missing(thresholds []Threshold, o Observation) {
	for _, t := range thresholds {
		_, known := o.Levels[t.Signal]
		if !known && !m.unknown[t.Signal] {
			m.log.Warn("nothing is known of a signal; its threshold is not looked at", "signal", t.Signal)
		}
		m.unknown[t.Signal] = !known
	}
}

// tell takes down what presses.
func (m *Manager) tell(pressure []v1.NodeConditionType) {
	m.mu.Lock()
	changed := !slices.Equal(pressure, m.pressure)
	m.pressure = pressure
	m.mu.Unlock()
	if !changed {
		return
	}
	m.log.Info("the pressure on the node has changed", "conditions", pressure)
	if m.cfg.Changed != nil {
		m.cfg.Changed()
	}
}

// Pressure names the conditions a node has now. nodestatus.Pressure shows them on its object.
func (m *Manager) Pressure() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.pressure)
}

// victim is a pod that is to end.
type victim struct {
	pod         *v1.Pod
	signal      string // the signal or limit, as the metric has it
	how         runtime.Termination
	annotations map[string]string
	last        int64 // so much memory in use ends its grace; 0: nothing does
}

// overLimits are the pods that exceed a limit of their own.
func (m *Manager) overLimits(pods []*v1.Pod, o Observation) []victim {
	if m.cfg.NoLocalLimits {
		return nil
	}
	var out []victim
	for _, p := range pods {
		u, ok := o.Usage[p.UID]
		if !ok || podspec.Critical(p) {
			continue
		}
		if limit, message := overLimit(p, u, o.Layout); limit != "" {
			out = append(out, victim{p, limit, runtime.Termination{Grace: hardGrace, Reason: Reason, Message: message}, nil, 0})
		}
	}
	return out
}

// relieve removes what no pod needs, and chooses one to end if that is not enough.
func (m *Manager) relieve(ctx context.Context, pods []*v1.Pod, o Observation, due, thresholds []Threshold) ([]victim, error) {
	t := due[0]
	what := t.Signal.resource()
	m.event(observe.Ref{Kind: "Node", Name: m.cfg.Node, UID: m.cfg.Node}, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", what), nil)
	m.log.Info("the node runs short of something", "signal", t.Signal, "threshold", t.Value.String(), "available", o.Levels[t.Signal].Available)
	if enough, err := m.clean(ctx, t.Signal, o.Layout, thresholds); enough || ctx.Err() != nil {
		return nil, err
	}
	for _, t := range due {
		if at := o.Levels[t.Signal].At; !at.IsZero() {
			m.metrics.age.Record(time.Since(at).Seconds(), string(t.Signal))
		}
	}
	m.lookCloser(ctx, &o)
	v := choose(t, due, pods, o, m.cfg.MaxGrace)
	if v == nil {
		m.log.Warn("no pod may be ended to relieve the node", "signal", t.Signal)
		return nil, nil
	}
	return []victim{*v}, nil
}

// lookCloser replaces what is known of pods by better figures, if there are any.
func (m *Manager) lookCloser(ctx context.Context, o *Observation) {
	if m.cfg.Closer == nil {
		return
	}
	closer, err := m.cfg.Closer.Observe(ctx)
	if err != nil {
		m.log.Warn("pods could not be looked at more closely; what is known decides", "err", err)
		return
	}
	o.Usage = closer.Usage
}

// choose takes the first pod in rank that may be ended.
func choose(t Threshold, due []Threshold, pods []*v1.Pod, o Observation, most time.Duration) *victim {
	for _, p := range Rank(t.Signal, pods, o) {
		if podspec.Critical(p) {
			continue
		}
		grace := hardGrace
		if !t.hard() {
			if own := p.Spec.TerminationGracePeriodSeconds; own != nil && (most < 0 || podspec.Seconds(*own) < most) {
				most = podspec.Seconds(*own)
			}
			grace = max(grace, most)
		}
		message, notes := explain(p, t.Signal.resource(), due, o)
		return &victim{p, string(t.Signal), runtime.Termination{Grace: grace, Reason: Reason, Message: message, Disruption: true}, notes, t.last(o)}
	}
	return nil
}

// clean removes dead containers and then images, where that helps the signal, and looks again after each. true: no threshold
// is met any more, nor any minimum reclaim missing.
func (m *Manager) clean(ctx context.Context, s Signal, l Layout, thresholds []Threshold) (enough bool, err error) {
	dead, images := cleaning(s, l)
	for _, step := range []struct {
		what    string
		use     bool
		reclaim Reclaimer
	}{{"dead containers", dead, m.cfg.Dead}, {"images", images, m.cfg.Images}} {
		if !step.use || step.reclaim == nil {
			continue
		}
		if err := step.reclaim.Reclaim(ctx); err != nil {
			m.log.Warn("not everything could be removed", "what", step.what, "err", err)
		}
		o, err := m.observe(ctx)
		if err != nil {
			return false, fmt.Errorf("after removing %s: %w", step.what, err)
		}
		if len(met(thresholds, o, true)) == 0 {
			m.log.Info("the node is relieved without ending a pod", "signal", s, "by", step.what)
			return true, nil
		}
	}
	return false, nil
}

// end ends pods, all at a time, waits until the node has everything back, and answers those for which there was anything to wait.
func (m *Manager) end(ctx context.Context, victims []victim) (ended []types.UID) {
	if len(victims) == 0 {
		return nil
	}
	failed := make([]bool, len(victims))
	var all sync.WaitGroup
	for i, v := range victims {
		all.Go(func() { failed[i] = !m.endOne(ctx, v) })
	}
	all.Wait()
	m.state.ended = time.Now() // what was measured before still counts them
	for i, v := range victims {
		if !failed[i] {
			ended = append(ended, v.pod.UID)
		}
	}
	return ended
}

// endOne ends a pod. false: it cannot be ended, which is no matter of time.
func (m *Manager) endOne(ctx context.Context, v victim) bool {
	about := observe.Pod(v.pod.Namespace, v.pod.Name, string(v.pod.UID))
	log := m.log.With("pod", v.pod.Name, "namespace", v.pod.Namespace, "uid", v.pod.UID)
	log.Warn("a pod is evicted", "for", v.signal, "message", v.how.Message)
	m.event(about, Reason, v.how.Message, v.annotations)
	m.metrics.evictions.Record(1, v.signal)
	kill, cancel := context.WithTimeout(ctx, max(killWithin, v.how.Grace*3/2))
	defer cancel()
	calm := m.hasten(kill, v, log)
	err := m.cfg.Pods.Kill(kill, v.pod.UID, v.how)
	calm()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		m.event(about, "ExceededGracePeriod", "Container runtime did not kill the pod within specified grace period.", nil)
		log.Warn("an evicted pod still runs", "err", err)
		if v.last != 0 && m.cfg.Kill != nil { // the runtime may lack the memory to end it
			m.kill(v, log)
		}
	case err != nil && !errors.Is(err, runtime.ErrNotFound) && ctx.Err() == nil:
		log.Warn("an evicted pod could not be ended; it is tried again", "err", err)
		return false
	}
	wait, cancelWait := context.WithTimeout(ctx, settle)
	defer cancelWait()
	if err := m.cfg.Pods.Settled(wait, v.pod.UID); err != nil && ctx.Err() == nil {
		log.Warn("the node does not have back yet what an evicted pod held", "err", err)
	}
	return true
}

// hasten kills a pod when memory runs out faster than it ends. calm stops that.
func (m *Manager) hasten(ctx context.Context, v victim, log *slog.Logger) (calm func()) {
	if v.last == 0 || m.cfg.Notifier == nil || m.cfg.Kill == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := m.cfg.Notifier.Wait(ctx, Signal(v.signal), v.last); err != nil {
			return // it has ended, or the kernel does not tell
		}
		log.Warn("memory runs out faster than the pod ends; it is killed")
		m.kill(v, log)
	})
	return func() { stop(); watch.Wait() }
}

func (m *Manager) kill(v victim, log *slog.Logger) {
	if err := m.cfg.Kill(v.pod.UID); err != nil {
		log.Warn("the pod could not be killed; it ends as others do", "err", err)
	}
}

func (m *Manager) event(about observe.Ref, reason, message string, annotations map[string]string) {
	m.cfg.Observe.Event(observe.Event{About: about, Warning: true, Reason: reason, Message: message, Annotations: annotations})
}

// Admit refuses pods while something presses: with memory alone those that request nothing and do not tolerate it, else all.
// A critical one is let in, and so is one that is here already.
func (m *Manager) Admit(_ context.Context, pod *v1.Pod, others []*v1.Pod) error {
	pressure := m.Pressure()
	here := slices.ContainsFunc(others, func(o *v1.Pod) bool { return o.UID == pod.UID })
	if len(pressure) == 0 || here || admits(pod, pressure) {
		return nil
	}
	return &runtime.Rejection{Reason: Reason, Message: fmt.Sprintf("The node had condition: %v. ", pressure)}
}

// rest waits for the time of the next pass, or until memory runs short.
func (m *Manager) rest(ctx context.Context, began time.Time) {
	ctx, cancel := context.WithDeadline(ctx, began.Add(m.cfg.Every))
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	if m.cfg.Notifier != nil {
		for s, used := range m.watched() {
			all.Go(func() {
				switch err := m.cfg.Notifier.Wait(ctx, s, used); {
				case err == nil:
					defer cancel()
					sleep(ctx, time.Until(began.Add(atLeast)))
				case ctx.Err() == nil:
					m.unheard(s, err)
				}
			})
		}
	}
	<-ctx.Done()
	cancel()
}

// watched are the signals the kernel is to tell of. The map is not changed any more.
func (m *Manager) watched() map[Signal]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marks
}

// unheard says once that the kernel does not tell of a signal.
func (m *Manager) unheard(s Signal, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.deaf[s] {
		m.deaf[s] = true
		m.log.Info("the kernel does not tell when memory runs short; it is looked at from time to time", "signal", s, "err", err)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
