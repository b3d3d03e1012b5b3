package cri

import (
	"context"
	"fmt"
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// owners remembers which sandbox a container is in: lists say so, complete looks do not. It is a cache of
// what never changes; a container it does not know is looked up.
type owners struct {
	mu sync.Mutex
	of map[string]string // sandbox ID by container ID
}

// learn takes over a listing.
func (o *owners) learn(list []*cri.Container) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range list {
		o.of[c.GetId()] = c.GetPodSandboxId()
	}
}

// only forgets everything that is not in a listing of everything.
func (o *owners) only(list []*cri.Container) {
	o.mu.Lock()
	clear(o.of)
	o.mu.Unlock()
	o.learn(list)
}

func (o *owners) forget(container string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, container)
}

func (o *owners) get(container string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[container]
}

// owner is the sandbox of a container, from memory or from the runtime.
func (e *Engine) owner(ctx context.Context, container string) (string, error) {
	if id := e.owners.get(container); id != "" {
		return id, nil
	}
	list, err := e.listContainers(ctx, &cri.ContainerFilter{Id: container})
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("sandbox of container %s: %w", container, runtime.ErrNotFound)
	}
	return list[0].GetPodSandboxId(), nil
}
