package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ErrRefused says that a status is one that a sink never takes, however often it is asked.
var ErrRefused = errors.New("the status is refused")

// Sink is where statuses go: an API server, a file, a tracker. The Manager makes one call at a time for one pod, and
// calls for different pods side by side; a call returns soon after ctx ends. Pod and status are shared and read-only.
type Sink interface {
	// UpdateStatus tells how a pod is. runtime.ErrNotFound says that nobody knows the pod any more; after another
	// error the Manager asks again with the status that is then the newest. ErrRefused keeps no pod that was asked to go.
	UpdateStatus(ctx context.Context, pod *v1.Pod, s v1.PodStatus) error

	// Finished is the last call for a pod: the node has everything back, the object may go. Errors as above.
	Finished(ctx context.Context, pod *v1.Pod) error
}

// Config describes a Manager. Sink is required; every other field works at zero.
type Config struct {
	Sink Sink

	Parallel   int           // calls of the sink at once; 0 means 4
	StopWithin time.Duration // how long Run goes on delivering once its context has ended; 0 means 5 s

	Observe observe.To // logger, steps, metrics; zero is silent
}

const (
	retryFirst = 500 * time.Millisecond // wait after a failure, doubled with each further one
	retryMax   = 4 * time.Second        // a server that is back may refuse at first, and is asked again soon
	reconcile  = 10 * time.Second       // how long the source may lag behind the sink before it counts as another opinion
)

// Manager is a Sink in front of a Sink. UpdateStatus and Finished only note what is to be told and may be called before,
// during and after Run; what is noted while Run does not run waits. All methods are safe for concurrent use; the calls
// for one pod come from one caller, in order.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics

	mu       sync.Mutex // guards the rest and all records
	more     sync.Cond  // queue got longer, or stopping
	pods     map[types.UID]*record
	queue    []*record     // in the order in which they became due
	calls    int           // of the sink, under way
	quiet    chan struct{} // closed when nothing is queued and no call is under way; nil: nobody waits for that
	stopping bool
}

// record is what the Manager knows of one pod.
type record struct {
	pod      *v1.Pod
	newest   *v1.PodStatus // nil: none yet
	told     *v1.PodStatus // what the sink has or is being told; nil: not known
	toldAt   time.Time
	since    time.Time // of the oldest change nobody has taken on yet
	finished bool

	state    state
	failures int
	retry    *time.Timer
}

type state uint8

const (
	idle state = iota
	queued
	sending
	resting // after a failure, until retry
)

// New checks the configuration and returns a Manager at rest.
func New(cfg Config) (*Manager, error) {
	if cfg.Sink == nil {
		return nil, errors.New("status: Sink is required")
	}
	if cfg.Parallel < 0 || cfg.StopWithin < 0 {
		return nil, fmt.Errorf("status: Parallel %d and StopWithin %v must not be negative", cfg.Parallel, cfg.StopWithin)
	}
	cfg.Parallel = cmp.Or(cfg.Parallel, 4)
	cfg.StopWithin = cmp.Or(cfg.StopWithin, 5*time.Second)
	ins := cfg.Observe.Instruments()
	m := &Manager{cfg: cfg, log: cfg.Observe.Logger(), metrics: newMetrics(ins), pods: map[types.UID]*record{}}
	if ins.Err != nil {
		return nil, fmt.Errorf("status: %w", ins.Err)
	}
	m.more.L = &m.mu
	return m, nil
}

// UpdateStatus notes the newest status of a pod. It never blocks. The caller leaves pod and s alone afterwards. The one
// error is a status that cannot be true, see the package comment; it is dropped, with ErrRefused. So is, silently, a status for a pod whose
// Finished is still to be delivered.
func (m *Manager) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.pods[pod.UID]
	if r != nil && r.finished {
		return nil
	}
	was := &pod.Status
	if r != nil && r.newest != nil {
		was = r.newest
	}
	if err := legal(pod, was, &s); err != nil {
		return fmt.Errorf("status of pod %s/%s: %w: %w", pod.Namespace, pod.Name, ErrRefused, err)
	}
	m.metrics.ends(was, &s)
	r = m.record(pod)
	r.newest = &s
	if r.overwritten() {
		r.told = nil
	}
	if r.due() {
		m.enqueue(r)
	}
	return nil
}

// Finished notes that a pod is over. The sink is told once it has the newest status. It never blocks and has no error.
func (m *Manager) Finished(_ context.Context, pod *v1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(pod)
	r.finished = true
	m.enqueue(r)
	return nil
}

// Again forgets that the sink has a pod's newest status, which is delivered once more: what it was written to has been made
// anew. It never blocks; a pod that is not known is nothing.
func (m *Manager) Again(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.pods[uid]
	if r == nil || r.newest == nil {
		return
	}
	r.told = nil
	m.enqueue(r)
}

// Flush returns when the sink has all that was noted, each pod after one more attempt at most. What it does not have by then,
// or when ctx ends, is an error, and is tried again as ever. Without Run it waits for nothing but ctx.
func (m *Manager) Flush(ctx context.Context) error {
	m.mu.Lock()
	m.retryNow()
	if m.quiet == nil {
		m.quiet = make(chan struct{})
	}
	quiet := m.quiet
	m.hush()
	m.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	left := 0
	for _, r := range m.pods {
		if r.due() || r.finished || r.state == sending {
			left++
		}
	}
	if left > 0 {
		return cmp.Or(ctx.Err(), fmt.Errorf("the statuses of %d pods are not delivered", left))
	}
	return nil
}

// hush tells who waits for it that there is nothing to do.
func (m *Manager) hush() {
	if m.quiet != nil && len(m.queue) == 0 && m.calls == 0 {
		close(m.quiet)
		m.quiet = nil
	}
}

// retryNow queues what rests after a failure.
func (m *Manager) retryNow() {
	for _, r := range m.pods {
		if r.state == resting {
			r.retry.Stop()
			r.state = idle
			m.enqueue(r)
		}
	}
}

// Run delivers until ctx ends, then what is queued for up to StopWithin, each pod with one more attempt, and returns nil.
// It must not run twice at once.
func (m *Manager) Run(ctx context.Context) error {
	deliver, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	m.start()

	var wg sync.WaitGroup
	for range m.cfg.Parallel {
		wg.Go(func() { m.work(deliver) })
	}
	<-ctx.Done()
	deadline := time.AfterFunc(m.cfg.StopWithin, cut)
	defer deadline.Stop()
	m.stop()
	wg.Wait()
	return nil
}

// start queues what an earlier Run could not deliver.
func (m *Manager) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = false
	for _, r := range m.pods {
		if r.due() || r.finished {
			m.enqueue(r)
		}
	}
}

// stop makes the workers return once the queue is empty. What rests after a failure is queued.
func (m *Manager) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
	m.retryNow()
	m.more.Broadcast()
}

// job is one call of the sink: a status, or without one Finished.
type job struct {
	pod    *v1.Pod
	status *v1.PodStatus
	since  time.Time
}

func (m *Manager) work(ctx context.Context) {
	for ctx.Err() == nil {
		r, j := m.take()
		if r == nil {
			return
		}
		m.settle(r, j, m.deliver(ctx, j))
	}
}

// take waits for the next pod that is due. It returns nil when there is none and Run stops.
func (m *Manager) take() (*record, job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		for len(m.queue) == 0 && !m.stopping {
			m.more.Wait()
		}
		if len(m.queue) == 0 {
			return nil, job{}
		}
		r := m.queue[0]
		m.queue[0] = nil
		m.queue = m.queue[1:]
		j := job{pod: r.pod, since: r.since}
		r.state, r.since = sending, time.Time{}
		m.calls++
		switch {
		case r.due():
			j.status, r.told = r.newest, r.newest
			return r, j
		case r.finished:
			return r, j
		}
		m.calls--
		r.state = idle // it went back to what the sink has
		m.hush()
	}
}

func (m *Manager) deliver(ctx context.Context, j job) error {
	what := "finished"
	var attrs []slog.Attr
	if j.status != nil {
		what = "status"
		attrs = append(attrs, slog.String("phase", string(j.status.Phase)))
	}
	ctx, step := m.cfg.Observe.Begin(ctx, observe.Pod(j.pod.Namespace, j.pod.Name, string(j.pod.UID)), what, attrs...)
	var err error
	if j.status != nil {
		err = m.cfg.Sink.UpdateStatus(ctx, j.pod, *j.status)
	} else {
		err = m.cfg.Sink.Finished(ctx, j.pod)
	}
	step.End(err)
	return err
}

// settle draws the conclusions of a call.
func (m *Manager) settle(r *record, j job, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.hush()
	m.calls--
	r.state = idle
	gone := errors.Is(err, runtime.ErrNotFound)
	switch {
	case err == nil || gone:
	case errors.Is(err, ErrRefused) && r.goes() && j.status == r.newest:
		m.log.Error("the last status of a pod is refused; its object goes without", "pod", j.pod.Name, "namespace", j.pod.Namespace, "uid", j.pod.UID, "err", err)
	default:
		m.failed(r, j, err)
		return
	}
	r.failures = 0
	if j.status != nil {
		r.toldAt = time.Now()
		if !gone {
			m.metrics.duration.Record(time.Since(j.since).Seconds())
		}
	}
	switch {
	case j.status == nil, gone && !r.finished && !r.due():
		delete(m.pods, j.pod.UID)
	case r.finished || r.due():
		m.enqueue(r)
	default:
		r.since = time.Time{}
	}
}

// failed has a pod wait for its next attempt. Whether the sink took the status is not known.
func (m *Manager) failed(r *record, j job, err error) {
	if j.status != nil {
		r.told, r.since = nil, j.since
	}
	args := []any{"pod", j.pod.Name, "namespace", j.pod.Namespace, "uid", j.pod.UID, "err", err}
	if m.stopping {
		m.log.Warn("status not delivered before the stop", args...)
		return
	}
	wait := min(retryFirst<<min(r.failures, 8), retryMax)
	m.log.Warn("status not delivered; trying again", append(args, "after", wait)...)
	r.failures++
	r.state = resting
	r.retry = time.AfterFunc(wait, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.state == resting {
			r.state = idle
			m.enqueue(r)
		}
	})
}

// goes says that the object of a pod is to go: that was asked for, and the pod is over.
func (r *record) goes() bool { return r.finished && r.pod.DeletionTimestamp != nil }

// record finds or makes the record of a pod.
func (m *Manager) record(pod *v1.Pod) *record {
	r := m.pods[pod.UID]
	if r == nil {
		r = new(record)
		m.pods[pod.UID] = r
	}
	r.pod = pod
	return r
}

// enqueue makes a pod wait for a worker, if it does not do so already. One that is being sent or rests is looked at again
// afterwards.
func (m *Manager) enqueue(r *record) {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	if r.state == idle {
		r.state = queued
		m.queue = append(m.queue, r)
		m.more.Signal()
	}
}

// due says that there is a status the sink neither has nor is being told.
func (r *record) due() bool {
	return r.newest != nil && (r.told == nil || r.newest != r.told && !equal(r.told, r.newest))
}

// overwritten says that the source still shows another status long after the sink took ours: somebody else wrote.
func (r *record) overwritten() bool {
	shown := &r.pod.Status
	return r.told != nil && r.state != sending && shown.Phase != "" && time.Since(r.toldAt) >= reconcile && !equal(shown, r.newest)
}
