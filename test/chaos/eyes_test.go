package chaos

import (
	"context"
	"encoding/json"
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eyes see what a runtime has. Several may look at once.
type eyes struct {
	cri cri.RuntimeServiceClient

	mu   sync.Mutex     // guards pids
	pids map[string]int // of containers that ran, by ID
}

// view lists all that the runtime has. When containerd cannot take note of a container's end at once it tries again after
// one second, two, four, and meanwhile lists it as running and lets its sandbox be stopped: a container without a process
// counts as ended.
func (e *eyes) view(ctx context.Context) (view, error) {
	c, err := e.cri.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return view{}, err
	}
	s, err := e.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	for _, c := range c.GetContainers() {
		if c.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if pid, err := e.pidOf(ctx, c.GetId()); err == nil && pid > 0 && born(pid) == "" {
			c.State = cri.ContainerState_CONTAINER_EXITED
		}
	}
	return view{c.GetContainers(), s.GetItems()}, err
}

// pidOf is the number of a running container's first process on this machine.
func (e *eyes) pidOf(ctx context.Context, id string) (int, error) {
	e.mu.Lock()
	pid := e.pids[id]
	e.mu.Unlock()
	if pid > 0 {
		return pid, nil
	}
	r, err := e.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(r.GetInfo()["info"]), &info); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pids == nil {
		e.pids = map[string]int{}
	}
	e.pids[id] = info.PID
	return info.PID, nil
}
