package syncloop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podsizes"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/status"
)

// Config describes a Loop. Sources, Runtime and Sink are required; every other field works at zero.
type Config struct {
	Sources map[string]PodSource // by name
	Runtime Runtime
	Sink    StatusSink

	Network Network // nil: the runtime sees to it
	Volumes Volumes // nil: pods bring none, or the runtime sees to them

	Roster   *Roster    // nil: an own one
	Probes   Probes     // nil: none; containers with probes never become ready
	States   States     // nil: Runtime.Pod
	Admit    []Admitter // asked in this order; the first refusal wins
	Sweepers []Sweeper

	Status      func(status.Input) v1.PodStatus // nil: status.Compute
	HostIPs     func() []string                 // this machine's, the primary one first; nil: unknown
	RuntimeName func() string                   // scheme of container IDs in a status; nil: unknown

	State   string        // directory where what was promised to pods outlives a restart; empty: it does not
	Resync  time.Duration // a look at every pod and at strangers; 0 means a minute
	Observe observe.To
}

// Loop keeps pods as they are wished for.
type Loop struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	r       *Roster
	runs    atomic.Bool
	wg      sync.WaitGroup
	sets    chan set
	swept   chan struct{} // housekeeping has ended

	allocated *podsizes.Store // the sizes that pods were promised; only the dispatcher promises

	// The dispatcher alone touches these.
	sources map[string]bool // which have been complete
	merged  uint64          // sets
	tried   time.Time       // when resizes were last looked at
	unsaved time.Time       // when people were last told that promises are not kept
	busy    bool            // housekeeping is under way
	owed    bool            // it was asked for meanwhile
	dirty   bool            // there may be strangers or leftovers that nobody has looked for

	mu   sync.Mutex // guards beat
	beat time.Time  // when the dispatcher was last seen alive
}

// set is all that a source wants.
type set struct {
	source   string
	pods     []*v1.Pod
	complete bool
	taken    chan struct{}
}

// New makes a Loop at rest.
func New(cfg Config) (*Loop, error) {
	if cfg.Runtime == nil || cfg.Sink == nil || len(cfg.Sources) == 0 {
		return nil, errors.New("syncloop: Sources, Runtime and Sink are required")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Status == nil {
		cfg.Status = status.Compute
	}
	if cfg.Roster == nil {
		cfg.Roster = new(Roster)
	}
	if cfg.HostIPs == nil {
		cfg.HostIPs = func() []string { return nil }
	}
	if cfg.RuntimeName == nil {
		cfg.RuntimeName = func() string { return "" }
	}
	cfg.Resync = cmp.Or(cfg.Resync, time.Minute)
	m, err := newMetrics(cfg.Observe)
	if err != nil {
		return nil, err
	}
	return &Loop{
		cfg: cfg, log: cfg.Observe.Logger(), metrics: m, r: cfg.Roster,
		sets: make(chan set), swept: make(chan struct{}, 1), sources: map[string]bool{},
		allocated: newAllocated(cfg.State, cfg.Observe),
	}, nil
}

// check finds what would fail only once the loop runs.
func (cfg Config) check() error {
	for name, s := range cfg.Sources {
		if s == nil {
			return fmt.Errorf("syncloop: Sources[%q] is nil", name)
		}
	}
	if i := slices.Index(cfg.Admit, nil); i >= 0 {
		return fmt.Errorf("syncloop: Admit[%d] is nil", i)
	}
	if i := slices.Index(cfg.Sweepers, nil); i >= 0 {
		return fmt.Errorf("syncloop: Sweepers[%d] is nil", i)
	}
	if cfg.Resync < 0 {
		return fmt.Errorf("syncloop: Resync %v must not be negative", cfg.Resync)
	}
	return nil
}

// tick is how often the dispatcher shows that it lives.
const tick = 10 * time.Second

// Run runs sources and workers until ctx ends, then cuts what is under way and returns nil when all of it has ended. Pods
// stay as they are. It is called once at a time.
func (l *Loop) Run(ctx context.Context) error {
	if !l.runs.CompareAndSwap(false, true) {
		return errors.New("syncloop: this Loop runs already")
	}
	defer l.runs.Store(false)
	defer l.rest()
	for name, s := range l.cfg.Sources {
		l.wg.Go(func() { l.follow(ctx, name, s) })
	}
	l.allocated.Get("") // reads what was promised by an earlier agent
	l.dirty = true
	l.housekeep(ctx)
	rings := l.r.rings()
	pulse := time.NewTicker(tick)
	defer pulse.Stop()
	resync := time.NewTicker(l.cfg.Resync)
	defer resync.Stop()
	for {
		l.mu.Lock()
		l.beat = time.Now()
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case s := <-l.sets:
			l.merge(s)
			close(s.taken)
			l.housekeep(ctx)
		case <-rings:
			for _, uid := range l.r.take() {
				l.turn(ctx, uid)
			}
		case <-l.swept:
			l.busy = false
			if l.owed {
				l.housekeep(ctx)
			}
		case <-resync.C:
			l.resync()
			l.dirty = true
			l.housekeep(ctx)
		case <-pulse.C:
		}
		l.resizes(ctx)
	}
}

// Healthy is nil while the dispatcher goes round; it must not stand still for five minutes, or for two resyncs if those
// are longer. Before Run it is not healthy.
func (l *Loop) Healthy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch limit := max(2*l.cfg.Resync, 5*time.Minute); {
	case l.beat.IsZero():
		return errors.New("the sync loop has not started")
	case time.Since(l.beat) > limit:
		return fmt.Errorf("the sync loop stands still since %s", l.beat.Format(time.RFC3339))
	}
	return nil
}

// follow runs a source, and runs it again when it returns too early: soon if it went well for a while, else more and more seldom.
func (l *Loop) follow(ctx context.Context, name string, s PodSource) {
	const first, most = time.Second, time.Minute
	for wait := first; ; wait = min(2*wait, most) {
		begun := time.Now()
		err := s.Run(ctx, func(pods []*v1.Pod, complete bool) {
			taken := make(chan struct{})
			select {
			case l.sets <- set{name, pods, complete, taken}:
			case <-ctx.Done():
				return
			}
			select {
			case <-taken:
			case <-ctx.Done():
			}
		})
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) >= most {
			wait = first
		}
		l.log.Warn("a pod source ended too early; its pods stay and it is started again", "name", name, "err", err, "after", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// resync asks for a look at everybody, a few together and spread over a while: to be woken for each takes longer than to look.
func (l *Loop) resync() {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	for _, w := range l.r.pods {
		l.after(w, spread(l.cfg.Resync/2, w.uid, w.looks).Truncate(l.cfg.Resync/30))
	}
}

// spread is a part of d that differs from pod to pod and from time to time, so that not all are busy at once. Who asks the
// same again is answered the same: what happened can be played again.
func spread(d time.Duration, uid types.UID, n uint64) time.Duration {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, uid, " ", n)
	return time.Duration(h.Sum64() % uint64(d+1))
}

// after wakes a worker at that time from now, unless a timer does so earlier. The roster is locked.
func (l *Loop) after(w *worker, d time.Duration) {
	at := time.Now().Add(d)
	if !w.timerAt.IsZero() && !at.Before(w.timerAt) {
		return
	}
	w.quiet()
	w.timerAt = at
	w.timer = time.AfterFunc(d, func() {
		l.r.mu.Lock()
		defer l.r.mu.Unlock()
		if w.timerAt.Equal(at) {
			w.timer, w.timerAt = nil, time.Time{}
		}
		l.r.wake(w.uid)
	})
}

// quiet stops a worker's timer. The roster is locked.
func (w *worker) quiet() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer, w.timerAt = nil, time.Time{}
}

// rest waits for all that Run started.
func (l *Loop) rest() {
	l.r.mu.Lock()
	for _, w := range l.r.pods {
		w.quiet()
	}
	l.r.mu.Unlock()
	l.wg.Wait()
}

func (l *Loop) refOf(pod *v1.Pod) observe.Ref {
	return observe.Pod(pod.Namespace, pod.Name, string(pod.UID))
}

func (l *Loop) tell(pod *v1.Pod, reason, message string) {
	if pod != nil {
		l.cfg.Observe.Event(observe.Event{About: l.refOf(pod), Warning: true, Reason: reason, Message: message})
	}
}

type metrics struct {
	workers, steps, orphans, rejections, preemptions, starts observe.Metric

	pendingResizes, resizesInProgress, requestedResizes, deferredAccepted observe.Metric
}

func newMetrics(o observe.To) (*metrics, error) {
	in := o.Instruments()
	m := &metrics{
		workers: in.Gauge("kubelet_working_pods", "Pods the loop works on.", "lifecycle"),
		steps: in.Histogram("kubelet_pod_worker_duration_seconds", "Time of one step of a pod.",
			[]float64{.01, .05, .1, .5, 1, 5, 10, 60}, "operation_type"),
		starts: in.Histogram("kubelet_pod_start_duration_seconds", "Time from when a pod was first seen here until it runs.",
			[]float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}),
		orphans:     in.Counter("kubelet_orphaned_runtime_pods_total", "Pods found in the runtime that no source wants."),
		rejections:  in.Counter("kubelet_admission_rejections_total", "Pods refused.", "reason"),
		preemptions: in.Counter("kubelet_preemptions", "Pods ended in whose place a critical one runs.", "preemption_signal"),

		pendingResizes:    in.Gauge("kubelet_pod_pending_resizes", "Pods that wait for new sizes.", "reason"),
		resizesInProgress: in.Gauge("kubelet_pod_in_progress_resizes", "Pods that are being given new sizes."),
		requestedResizes:  in.Counter("kubelet_container_requested_resizes_total", "Changes of sizes asked for.", "resource", "requirement", "operation"),
		deferredAccepted:  in.Counter("kubelet_pod_deferred_accepted_resizes_total", "Resizes that had to wait and were promised then.", "retry_trigger"),
	}
	return m, in.Err
}
