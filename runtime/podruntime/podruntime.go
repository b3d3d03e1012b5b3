package podruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podsizes"
	"github.com/kubeletkit/kubeletkit/network"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Images has the image of a container present and holds it against collection until release is called. Errors may be
// *runtime.WaitingError; events are about the object given.
type Images interface {
	Ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, about observe.Ref) (img runtime.Image, release func(), err error)
}

// Objects are the API objects environment variables are read from. One that does not exist is runtime.ErrNotFound. Objects
// are shared and read-only.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// Follow calls changed after each change of an object, also when it comes to be, until stop is called. Once more than
	// needed does no harm. changed does not block. The kind is ConfigMap or Secret. Only what a container waits for is followed.
	Follow(kind, namespace, name string, changed func()) (stop func())
}

// Subpaths makes one path inside a volume safe to bind into a container. done is called once the container is made or given
// up.
type Subpaths interface {
	Subpath(ctx context.Context, uid types.UID, volume, container string, index int, path string) (host string, done func(), err error)
}

// Cgroups keeps a cgroup for each pod, in which its sandbox lies. All calls may be repeated.
type Cgroups interface {
	Parent(pod *v1.Pod) string                       // how an engine is told of it
	Ensure(ctx context.Context, pod *v1.Pod) error   // makes it, or gives it what it lacks; nothing becomes less
	Shrink(ctx context.Context, pod *v1.Pod) error   // takes from it what it has too much
	Remove(ctx context.Context, uid types.UID) error // with all that still runs in it; one that is gone is no error
}

// Config describes a Runtime. Engine is required; every other field works at zero.
type Config struct {
	Engine runtime.Engine
	Images Images // nil: nothing is pulled; the engine finds a container's image, or has none and is given what is written

	Allocations Allocations // nil: nothing is set aside for containers

	Cgroups  Cgroups                                       // nil: a sandbox lies where its engine puts it
	Subpaths Subpaths                                      // nil: a mount with a subPath fails
	Objects  Objects                                       // nil: a variable from a ConfigMap or Secret fails
	Classes  func(name string) (handler string, err error) // runtime classes; runtime.ErrNotFound: no such one; nil: a pod that names one fails
	// Services are those of a namespace, from memory; an error (runtime.ErrUnavailable: asked again soon) holds back containers
	// of pods that are not from files. nil: pods are told of no services.
	Services func(ctx context.Context, namespace string) ([]*v1.Service, error)

	Node    func() *v1.Node    // what resourceFieldRef falls back to; nil: unknown
	HostIPs func() []string    // this machine's, the primary one first; nil: unknown
	Memory  int64              // of this machine in bytes; 0: unknown
	Kernel  Kernel             // what this machine can do beside that: LookAtKernel
	DNS     func() network.DNS // how names are resolved, asked for each sandbox; nil: the engine's way

	Policy         Policy // of resources
	Users          Users  // IDs for user namespaces of pods
	SeccompDefault bool   // containers that say nothing get the engine's profile, not none

	Stats runtime.Stats // what containers use; nil: a memory limit may be set below that, and the kernel decides

	Root     string // state of pods; empty: no termination messages, no /etc/hosts of our own, and sizes applied are forgotten at the end
	LogRoot  string // log files; empty: /var/log/pods
	LogLinks string // links to log files by container name; empty: none
	Starts   int    // sandboxes and containers being made at once, by urgency, priority and arrival of their pods, not counting those that take longer than 20 s; 0: two a processor

	Backoff time.Duration // the longest wait before a container that ended is started again; 0: five minutes

	Changed func(types.UID) // called when Waiting of a pod has changed; must not block
	Observe observe.To
}

// Runtime is a syncloop.Runtime over an engine.
type Runtime struct {
	cfg      Config
	files    layout
	turns    turns
	memory   memory
	pictures pictures
	applied  *podsizes.Store // what running containers were given
	ranges   ranges
	hooks    *http.Client
	network  uplink
	metrics  *metrics
}

// New makes a Runtime at rest.
func New(cfg Config) (*Runtime, error) {
	if cfg.Engine == nil {
		return nil, errors.New("podruntime: Engine is required")
	}
	if cfg.Starts < 0 {
		return nil, fmt.Errorf("podruntime: Starts %d must not be negative", cfg.Starts)
	}
	cfg.LogRoot = cmp.Or(cfg.LogRoot, "/var/log/pods")
	cfg.Starts = cmp.Or(cfg.Starts, 2*goruntime.NumCPU())
	if cfg.DNS == nil {
		cfg.DNS = func() network.DNS { return network.DNS{} }
	}
	if cfg.Changed == nil {
		cfg.Changed = func(types.UID) {}
	}
	users, err := cfg.Users.check()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Observe)
	if err != nil {
		return nil, err
	}
	return &Runtime{
		cfg: cfg, files: layout{root: cfg.Root, logs: cfg.LogRoot, links: cfg.LogLinks},
		turns: turns{free: cfg.Starts}, hooks: hookClient(), metrics: m,
		applied: newApplied(cfg.Root, cfg.Observe), ranges: ranges{Users: users},
	}, nil
}

type metrics struct {
	pods, podErrors             observe.Metric
	userPods, userPodErrors     observe.Metric // those in a user namespace of their own
	containers, containerErrors observe.Metric
	resizes                     observe.Metric
	sleepsCut, plainHooks       observe.Metric
}

func newMetrics(o observe.To) (*metrics, error) {
	in := o.Instruments()
	m := &metrics{
		pods:            in.Counter("kubelet_started_pods_total", "Sandboxes started."),
		podErrors:       in.Counter("kubelet_started_pods_errors_total", "Sandboxes that could not be started."),
		userPods:        in.Counter("kubelet_started_user_namespaced_pods_total", "Sandboxes with a user namespace of their own that were asked for."),
		userPodErrors:   in.Counter("kubelet_started_user_namespaced_pods_errors_total", "Those of them that did not start, or whose first containers did not."),
		containers:      in.Counter("kubelet_started_containers_total", "Containers started.", "container_type"),
		containerErrors: in.Counter("kubelet_started_containers_errors_total", "Containers that could not be started.", "container_type", "code"),
		sleepsCut:       in.Counter("kubelet_sleep_action_terminated_early_total", "Sleeps of hooks that were cut."),
		plainHooks:      in.Counter("kubelet_lifecycle_handler_http_fallbacks_total", "Hooks over HTTPS that were answered, and then asked, in plain HTTP."),
		resizes: in.Histogram("kubelet_pod_resize_duration_milliseconds", "Time of giving a running pod its new sizes.",
			[]float64{1, 5, 10, 50, 100, 500, 1000, 5000}, "success"),
	}
	return m, in.Err
}

// retryAfter is when something that failed is tried again, if its error does not say.
const retryAfter = 10 * time.Second

// reservedFor is how long a name is asked for that the runtime has reserved, before it counts as one that is never given back: some
// minutes more than a call goes on that was cut. Each further one has twice as long: a runtime that is only slow is not to be asked
// for more and more.
const reservedFor = 5 * time.Minute

// unavailableAfter is the same for an engine that does not answer: it may be back at once.
const unavailableAfter = time.Second

// retryOf is when something is tried again that has failed since then. A name that is in use is asked for often at first: it
// may be that of a call that was cut a moment ago, such as by the end of an agent.
func retryOf(err error, since, now time.Time) time.Time {
	if w, ok := errors.AsType[*runtime.WaitingError](err); ok && !w.Until.IsZero() {
		return w.Until
	}
	if errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, runtime.ErrNetworkNotReady) {
		return now.Add(unavailableAfter)
	}
	if errors.Is(err, runtime.ErrInUse) {
		return now.Add(min(max(now.Sub(since), unavailableAfter), retryAfter))
	}
	return now.Add(retryAfter)
}
