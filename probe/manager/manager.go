package manager

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/podprobe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Target is the container instance a check is about.
type Target struct {
	Pod       *v1.Pod
	Container string // its name
	ID        string
	IP        string // of the pod; empty while it has none
}

// Config of a Manager. Every field works at zero.
type Config struct {
	Exec runtime.Execer // runs commands in containers; nil: exec probes stay undecided
	GRPC podprobe.GRPC  // nil: gRPC probes stay undecided

	// Check replaces how a target is asked. It is called from many goroutines, returns soon after ctx ends (its
	// deadline is the probe's timeout), and may answer podprobe.ErrUndecided. nil: podprobe.Check with Exec and GRPC.
	Check func(ctx context.Context, t Target, p *v1.Probe) (probe.Result, string, error)

	// Changed is called after a check has changed a result of that pod, from many goroutines. It must not block, and
	// may call the manager. What Track itself sets is not told: its caller is about to look anyway.
	Changed func(types.UID)

	// HostIPs are the addresses of this node, the main one first. A pod on the host's network that shows no address is
	// asked there, and a pod with addresses of both families at the one of the main family. nil: not known.
	HostIPs func() []string

	Observe observe.To // events Unhealthy and ProbeWarning; metrics prober_*
}

// Manager has the probes of many pods under way.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	start   time.Time
	client  *http.Client // of all checks
	metrics metrics
	sched   *schedule

	mu   sync.Mutex           // guards what follows and all that hangs on it; before the lock of sched
	pods map[types.UID]*watch // pods with probes
}

// New makes a Manager. Containers that run by now are taken for older than the agent, see the package comment.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, log: cfg.Observe.Logger(), start: time.Now(), client: probe.Client(), sched: newSchedule(), pods: map[types.UID]*watch{}}
	var err error
	m.metrics, err = newMetrics(cfg.Observe)
	return m, err
}

// Run carries out the probes until ctx ends, and returns nil once the last check has returned.
func (m *Manager) Run(ctx context.Context) error {
	m.sched.run(ctx)
	return nil
}

// Track makes the probes under way those that a pod as seen should have; ending says that it is being stopped. Call it
// with each new look, as often as you like. A look older than the last one is ignored. The pod's status is read only
// for containers older than the manager.
func (m *Manager) Track(pod *v1.Pod, seen runtime.Pod, ending bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.pods[pod.UID]
	if w == nil {
		if !hasProbes(pod) {
			return
		}
		w = &watch{instances: map[string]*instance{}, series: map[series]struct{}{}}
		m.pods[pod.UID] = w
	}
	w.pod, w.ending = pod, ending
	if !seen.At.Before(w.seen) {
		w.seen, w.ips = seen.At, seen.IPs
		for c, path := range probed(pod) {
			m.look(w, c, path, seen.Newest(c.Name))
		}
	}
	for _, i := range w.instances {
		m.settle(i, false)
	}
}

// Results is what is known of a pod's containers, by container ID; nil for a pod without probes. The map is shared and
// never changes: do not change it either.
func (m *Manager) Results(uid types.UID) runtime.ProbeResults {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.pods[uid]
	if w == nil {
		return nil
	}
	if w.results == nil {
		w.results = make(runtime.ProbeResults, len(w.instances))
		for _, i := range w.instances {
			w.results[i.id] = i.result
		}
	}
	return w.results
}

// Forget ends all probes of a pod and drops their results.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.pods[uid]
	if w == nil {
		return
	}
	for _, i := range w.instances {
		m.drop(i)
	}
	m.metrics.forget(w, "")
	delete(m.pods, uid)
}

// probed are the containers with probes that count, with the field path by which events name them.
func probed(pod *v1.Pod) iter.Seq2[*v1.Container, string] {
	return func(yield func(*v1.Container, string) bool) {
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			if probes(c) && !yield(c, "spec.containers{"+c.Name+"}") {
				return
			}
		}
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			if podspec.Sidecar(c) && probes(c) && !yield(c, "spec.initContainers{"+c.Name+"}") {
				return
			}
		}
	}
}

func probes(c *v1.Container) bool {
	return c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil
}

func hasProbes(pod *v1.Pod) bool {
	for range probed(pod) {
		return true
	}
	return false
}
