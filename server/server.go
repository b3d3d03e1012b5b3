package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
)

// Config describes a server. Pods is required; every other field works at zero. All of it is called concurrently.
type Config struct {
	Pods   Pods
	Access Access // nil: nobody gets in, only /healthz answers

	Running  Running                 // nil: no /runningpods/
	Logs     Logs                    // nil: no /containerLogs
	Streams  Streams                 // nil: no /exec, /attach, /portForward
	Metrics  map[string]http.Handler // by path: /metrics, /metrics/resource, ...
	Configz  map[string]any          // shown as JSON; nil: no /configz
	Summary  Summary                 // nil: no /stats/summary
	Health   map[string]func() error // by name: syncloop, ...; each returns soon. ping is always there
	Timeline Timeline                // nil: no /debug/pods
	Garbage  http.Handler            // GET shows what could be removed, POST removes it; nil: no /debug/gc
	HostLogs http.Handler            // answers below /logs/, with logs of this host; nil: 405, as with the kubelet where a setting says so
	Profiles http.Handler            // answers below /debug/pprof/, as net/http/pprof does; nil: 405, likewise

	// Closed says that whoever asks for sessions, logs, running pods, or something below /debug is told that debug
	// endpoints are disabled, as by the kubelet.
	Closed bool

	// ReadOnly says that Access lets everybody read and nobody change anything; the metrics tell such a server from others.
	ReadOnly bool

	Observe observe.To
}

// Pods are the pods wanted on this node with their newest status, in any order. They are not changed.
type Pods interface{ Pods() []*v1.Pod }

// Running tells what the runtime has of all pods. Those of which nothing runs are left out here.
type Running interface {
	Pods(ctx context.Context) ([]runtime.Pod, error)
}

// Logs opens the log of a container, or with previous of the instance before it. The error is shown to the user as it
// is, with 400: there is no instance, it waits to start, ...
type Logs interface {
	Logs(ctx context.Context, pod *v1.Pod, container string, previous bool, o logs.Options) (io.ReadCloser, error)
}

// Summary is what is used of the node and of its pods. fresh asks for figures of this moment.
type Summary func(ctx context.Context, fresh bool) (*stats.Summary, error)

// Timeline is the latest that happened to a pod, oldest first; observe.Journal is one.
type Timeline interface {
	Timeline(uid string) []observe.Entry
}

// Access decides who may do what.
type Access interface {
	// Authenticate says who asks. Nobody is nil, with or without an error that says why.
	Authenticate(r *http.Request) (*authnv1.UserInfo, error)

	// Authorize says whether user may verb (get, create, update, patch, delete, or empty for other methods) the
	// subresource of resource, which is "nodes". An error stops the request.
	Authorize(ctx context.Context, user *authnv1.UserInfo, verb, resource, subresource string) (bool, error)
}

// handler is what New gives.
type handler struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	mux     *http.ServeMux
	routes  map[string]route // by pattern
}

// New makes the handler.
func New(cfg Config) (http.Handler, error) {
	if cfg.Pods == nil {
		return nil, errors.New("server: Pods is required")
	}
	h := &handler{cfg: cfg, log: cfg.Observe.Logger(), mux: http.NewServeMux(), routes: map[string]route{}}
	for _, r := range h.table() {
		h.routes[r.pattern] = r
		h.mux.Handle(r.pattern, r.handler(h))
	}
	var err error
	h.metrics, err = newMetrics(cfg.Observe, h.routes, cfg.ReadOnly)
	return h, err
}

// ServeHTTP lets in who may come in.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.metrics.begin(r)()
	t := &tracked{ResponseWriter: w}
	defer h.catch(t, r)

	if h.cfg.Access == nil && r.URL.Path == openPath || h.admit(t, r) {
		h.mux.ServeHTTP(t, r)
	}
}

// openPath is the one path that answers where nobody can be known.
const openPath = "/healthz"

// catch makes a panic the end of one request only.
func (h *handler) catch(w *tracked, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // says to cut the connection, not that anything is wrong
	}
	h.log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.wrote {
		panic(http.ErrAbortHandler)
	}
	http.Error(w, "internal error", http.StatusInternalServerError)
}

// find looks for a pod by name, and by uid unless that is empty.
func (h *handler) find(namespace, name string, uid types.UID) (*v1.Pod, error) {
	var found *v1.Pod
	var names []string
	for _, p := range h.cfg.Pods.Pods() {
		switch {
		case p.Namespace != namespace:
		case p.Name != name:
			names = append(names, p.Name)
		case uid != "" && uid != p.UID:
		case found == nil || found.DeletionTimestamp != nil: // one that stays before one that goes
			found = p
		}
	}
	if found == nil && uid != "" {
		return nil, fail(http.StatusNotFound, "pod %q with uid %q does not exist in namespace %q", name, uid, namespace)
	}
	if found == nil {
		return nil, fail(http.StatusNotFound, "pod %q does not exist in namespace %q; there: %s", name, namespace, list(names))
	}
	return found, nil
}

// container checks that a pod has a container of that name.
func container(pod *v1.Pod, name string) (*v1.Container, error) {
	var names []string
	for c := range containers(pod) {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return nil, fail(http.StatusNotFound, "container %q not found in pod %q; there: %s", name, pod.Name, list(names))
}

// containers of a pod, of all kinds.
func containers(pod *v1.Pod) func(yield func(*v1.Container) bool) {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
		for i := range pod.Spec.InitContainers {
			if !yield(&pod.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if !yield((*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}
