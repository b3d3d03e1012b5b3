package runtimetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Engine is a node in memory. Beside runtime.Engine it is a Notifier, a LogReopener and Stats.
type Engine struct {
	// Behave says what a container will do; it is asked when the container is started. nil is Shell.
	Behave func(c *runtime.ContainerConfig) Behavior

	// Logs makes containers write their lines to LogDir/LogPath, as files in the CRI format.
	Logs bool

	// ImageDir is where it says that images lie. Nothing is written there; empty is a place that does not exist.
	ImageDir string

	// WriteDir is where it says that containers write; empty: it says nothing of that.
	WriteDir string

	mu         sync.Mutex // guards what follows
	info       runtime.Info
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     []runtime.Image
	remote     []runtime.Image
	faults     map[string]Fault
	calls      map[string]int
	listeners  map[*listener]struct{}
	serial     int
}

var (
	_ runtime.Engine      = (*Engine)(nil)
	_ runtime.Notifier    = (*Engine)(nil)
	_ runtime.LogReopener = (*Engine)(nil)
	_ runtime.Stats       = (*Engine)(nil)
)

// New makes a ready engine with these images and nothing that runs.
func New(images ...runtime.Image) *Engine {
	return &Engine{
		info: runtime.Info{
			Name: "runtimetest", Version: "1.0.0",
			Ready: runtime.Condition{OK: true}, Network: runtime.Condition{OK: true},
			Handlers: []runtime.Handler{{RecursiveRO: true, UserNamespaces: true}},
		},
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
		images:     slices.Clone(images),
		faults:     map[string]Fault{},
		calls:      map[string]int{},
		listeners:  map[*listener]struct{}{},
	}
}

// Info is the last SetInfo.
func (e *Engine) Info(ctx context.Context) (runtime.Info, error) {
	return do(ctx, e, Call{Method: "Info"}, func() (runtime.Info, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.info, nil
	})
}

// SetInfo sets what Info answers. Sandboxes of a handler not named in it are refused.
func (e *Engine) SetInfo(i runtime.Info) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.info = i
}

// newID gives IDs that a test can read: kind and a number that is used once.
func (e *Engine) newID(kind string) string {
	e.serial++
	return fmt.Sprintf("%s%d", kind, e.serial)
}

// marked is the given labels with the pod's identity written over them, as every engine stores them.
func marked(given map[string]string, pod runtime.PodRef, container string) map[string]string {
	m := maps.Clone(given)
	if m == nil {
		m = map[string]string{}
	}
	m[runtime.LabelPodName] = pod.Name
	m[runtime.LabelPodNamespace] = pod.Namespace
	m[runtime.LabelPodUID] = string(pod.UID)
	if container != "" {
		m[runtime.LabelContainerName] = container
	}
	return m
}

// selects says whether a listing filtered by f shows something of that pod.
func selects(f runtime.Filter, pod types.UID, alive bool) bool {
	return (f.Pod == "" || f.Pod == pod) && (alive || !f.OnlyAlive)
}

func notFound(kind, id string) error {
	return fmt.Errorf("%s %q: %w", kind, id, runtime.ErrNotFound)
}

// Truth is all that exists, in no order, whatever is injected into calls.
func (e *Engine) Truth() ([]runtime.Sandbox, []runtime.Container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sandboxes := make([]runtime.Sandbox, 0, len(e.sandboxes))
	for _, s := range e.sandboxes {
		sandboxes = append(sandboxes, s.Sandbox)
	}
	containers := make([]runtime.Container, 0, len(e.containers))
	for _, c := range e.containers {
		containers = append(containers, c.Container)
	}
	return sandboxes, containers
}
