package nodestatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const runtimePatience = 30 * time.Second // without a good answer; then the engine counts as down

// Engine shows how a container engine is: a setter that asks it, and the health functions that judge its last answers.
// Methods are safe for concurrent use.
type Engine struct {
	info func(ctx context.Context) (runtime.Info, error)

	mu    sync.Mutex // guards the rest
	last  runtime.Info
	known bool      // there was an answer
	good  time.Time // of the last answer that said the engine is ready
}

// NewEngine follows an engine by its Info.
func NewEngine(info func(ctx context.Context) (runtime.Info, error)) *Engine {
	return &Engine{info: info}
}

// SetNode asks the engine and sets its version, its runtime handlers and what it can do. It belongs before [Ready].
func (e *Engine) SetNode(ctx context.Context, node *v1.Node) error {
	info, err := e.info(ctx)
	if err != nil {
		return fmt.Errorf("ask the container runtime how it is: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last, e.known = info, true
	node.Status.NodeInfo.ContainerRuntimeVersion = info.Name + "://" + cmp.Or(info.Version, "Unknown")
	if !info.Ready.OK {
		return nil
	}
	e.good = time.Now()
	node.Status.RuntimeHandlers = handlers(info.Handlers)
	node.Status.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &info.GroupsPolicy}
	return nil
}

// handlers are sorted by name, so that they change only when something changed.
func handlers(in []runtime.Handler) []v1.NodeRuntimeHandler {
	var out []v1.NodeRuntimeHandler
	for _, h := range in {
		out = append(out, v1.NodeRuntimeHandler{Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: &h.RecursiveRO, UserNamespaces: &h.UserNamespaces,
		}})
	}
	slices.SortStableFunc(out, func(a, b v1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Up is a health function: the engine said at least once in the last 30 s that it is ready.
func (e *Engine) Up() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.good.IsZero():
		return errors.New("container runtime status check may not have completed yet")
	case time.Since(e.good) >= runtimePatience:
		return errors.New("container runtime is down")
	}
	return nil
}

// Ready is a health function: the engine's last answer was that it is ready.
func (e *Engine) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known {
		return nil // Up says it
	}
	return unready("container runtime not ready", "RuntimeReady", e.last.Ready)
}

// Network is a health function: the engine's last answer was that it can give pods a network.
func (e *Engine) Network() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known {
		return errors.New("network state unknown")
	}
	return unready("container runtime network not ready", "NetworkReady", e.last.Network)
}

func unready(what, condition string, c runtime.Condition) error {
	if c.OK {
		return nil
	}
	return fmt.Errorf("%s: %s=false reason:%s message:%s", what, condition, c.Reason, c.Message)
}
