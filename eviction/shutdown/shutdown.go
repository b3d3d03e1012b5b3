package shutdown

import (
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

// Notice tells that the machine is about to go down, or that it stays after all.
type Notice interface {
	// Watch calls tell at each change, from one goroutine, until ctx ends (nil) or it cannot go on (an error; it is called
	// again). What has not changed it may tell again, as when it begins: a shutdown may have begun, or been called off, unheard.
	// A shutdown is held up until the channel that tell answers is closed; need is how long that may take.
	Watch(ctx context.Context, need time.Duration, tell func(down bool) (ready <-chan struct{})) error
}

// Pods are those that run, and the way to end one. syncloop.Roster is it. Methods are called from several goroutines.
type Pods interface {
	Active() []*v1.Pod
	Kill(ctx context.Context, uid types.UID, how runtime.Termination) error
	Settled(ctx context.Context, uid types.UID) error
}

// Config describes a Manager. Notice and Pods are required; every other field works at zero.
type Config struct {
	Notice Notice
	Pods   Pods

	Periods map[int32]time.Duration // of each group, by the least priority of its pods; all zero: nothing is done
	Node    string                  // name of the node, for events

	Changed func()                          // Healthy answers something else now; must not block; nil: nobody needs to know
	Flush   func(ctx context.Context) error // returns when all statuses are told; nil: nobody waits for that

	Observe observe.To // logger, events, metrics; zero is silent
}

// What a pod's status says, and why new ones are refused.
const (
	reason     = "Terminated"
	message    = "Pod was terminated in response to imminent node shutdown."
	notNow     = "NodeShutdown"
	notNowText = "Pod was rejected as the node is shutting down."
)

const again = time.Second // until a Notice that failed is asked anew

// Manager ends pods before the machine does. All methods are safe for concurrent use.
type Manager struct {
	cfg        Config
	log        *slog.Logger
	start, end observe.Metric

	mu     sync.Mutex // guards the rest
	down   bool
	cancel context.CancelFunc // of the ending under way; nil: none is
	ready  chan struct{}      // closed when it is over
	work   sync.WaitGroup
}

// New makes a Manager at rest.
func New(cfg Config) (*Manager, error) {
	if cfg.Notice == nil || cfg.Pods == nil {
		return nil, errors.New("shutdown: Notice and Pods are required")
	}
	for priority, d := range cfg.Periods {
		if d < 0 || d > 0 && d < time.Second {
			return nil, fmt.Errorf("shutdown: the period %v of priority %d must be zero or a second at least", d, priority)
		}
	}
	in := cfg.Observe.Instruments()
	return &Manager{
		cfg: cfg, log: cfg.Observe.Logger(),
		start: in.Gauge("kubelet_graceful_shutdown_start_time_seconds", "When the last shutdown of the node began."),
		end:   in.Gauge("kubelet_graceful_shutdown_end_time_seconds", "When the last shutdown of the node had ended its pods."),
	}, in.Err
}

// Run watches until ctx has ended, then returns nil. An ending that is under way is cut.
func (m *Manager) Run(ctx context.Context) error {
	defer m.work.Wait()
	defer m.stop()
	was := ""
	for need := m.need(); need > 0 && ctx.Err() == nil; {
		err := m.cfg.Notice.Watch(ctx, need, func(down bool) <-chan struct{} { return m.tell(ctx, down) })
		if ctx.Err() != nil {
			break
		}
		if now := fmt.Sprint(err); now != was { // a machine without a bus would fill the log
			m.log.Warn("shutdowns of the machine cannot be watched; it is tried again each second", "err", err)
			was = now
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
	<-ctx.Done()
	return nil
}

// need is how long an ending may take.
func (m *Manager) need() time.Duration {
	var sum time.Duration
	for _, d := range m.cfg.Periods {
		sum += d
	}
	return sum
}

// tell begins or calls off. The channel is closed when the machine may go.
func (m *Manager) tell(ctx context.Context, down bool) <-chan struct{} {
	m.mu.Lock()
	if down && m.down {
		defer m.mu.Unlock()
		return m.ready
	}
	m.mu.Unlock()
	m.stop()
	m.work.Wait()
	m.mu.Lock()
	changed := m.down != down
	m.down = down
	ready := make(chan struct{})
	m.ready = ready
	if down {
		ctx, m.cancel = context.WithTimeout(ctx, m.need())
		m.work.Go(func() {
			defer close(ready)
			m.endAll(ctx)
		})
	}
	m.mu.Unlock()
	if changed {
		m.log.Info("the machine's way has changed", "down", down)
		if !down {
			m.event("Shutdown manager detected shutdown cancellation")
		}
		if m.cfg.Changed != nil {
			m.cfg.Changed()
		}
	}
	if !down {
		close(ready)
	}
	return ready
}

func (m *Manager) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cancel != nil {
		m.cancel()
		m.cancel = nil
	}
}

// endAll ends the groups one after another and has their statuses told.
func (m *Manager) endAll(ctx context.Context) {
	m.event("Shutdown manager detected shutdown event")
	m.start.Record(float64(time.Now().UnixMilli()) / 1e3)
	for _, g := range plan(m.cfg.Pods.Active(), m.cfg.Periods) {
		m.log.Info("pods are ended before the machine goes down", "priority", g.priority, "pods", len(g.pods), "within", g.period)
		m.endGroup(ctx, g)
		if errors.Is(ctx.Err(), context.Canceled) {
			return
		}
	}
	if m.cfg.Flush != nil {
		if err := m.cfg.Flush(ctx); err != nil {
			m.log.Warn("not every status could be told before the machine goes down", "err", err)
		}
	}
	m.end.Record(float64(time.Now().UnixMilli()) / 1e3)
}

func (m *Manager) event(message string) {
	m.cfg.Observe.Event(observe.Event{About: observe.Ref{Kind: "Node", Name: m.cfg.Node, UID: m.cfg.Node}, Reason: "Shutdown", Message: message})
}

// endGroup ends pods side by side and waits until all are gone and settled, or their period has ended.
func (m *Manager) endGroup(ctx context.Context, g group) {
	ctx, cancel := context.WithTimeout(ctx, g.period)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range g.pods {
		all.Go(func() {
			err := m.cfg.Pods.Kill(ctx, p.UID, runtime.Termination{Grace: grace(p, g.period), Reason: reason, Message: message, Disruption: true})
			if err == nil {
				err = m.cfg.Pods.Settled(ctx, p.UID)
			}
			if err != nil && !errors.Is(err, runtime.ErrNotFound) {
				m.log.Warn("a pod did not end within its period", "pod", p.Name, "namespace", p.Namespace, "uid", p.UID, "err", err)
			}
		})
	}
	all.Wait()
}

// Admit refuses pods while the machine is about to go down.
func (m *Manager) Admit(context.Context, *v1.Pod, []*v1.Pod) error {
	if m.Healthy() == nil {
		return nil
	}
	return &runtime.Rejection{Reason: notNow, Message: notNowText}
}

// Healthy is an error while the machine is about to go down. nodestatus.Ready shows it.
func (m *Manager) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errors.New("node is shutting down")
	}
	return nil
}
