package cri

import (
	"context"
	"fmt"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// CreateContainer makes a container. CRI wants to be told again what the sandbox was made from:
// ContainerConfig.Sandbox is required.
func (e *Engine) CreateContainer(ctx context.Context, sandbox string, c *runtime.ContainerConfig) (string, error) {
	what := "create container " + c.Name + " of " + c.Pod.Namespace + "/" + c.Pod.Name
	if c.Sandbox == nil {
		return "", fmt.Errorf("%s: ContainerConfig.Sandbox is required", what)
	}
	config, err := containerConfig(c)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	q := &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: config, SandboxConfig: sandboxConfig(c.Sandbox)}
	a, err := invoke(ctx, e, call{op: "create_container", what: what}, e.runtime.CreateContainer, q)
	if err == nil {
		e.owners.learn([]*cri.Container{{Id: a.GetContainerId(), PodSandboxId: sandbox}})
	}
	return named(what, a.GetContainerId(), err)
}

// StartContainer starts a created container.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	q := &cri.StartContainerRequest{ContainerId: id}
	_, err := invoke(ctx, e, call{op: "start_container", what: "start container " + id}, e.runtime.StartContainer, q)
	return err
}

// UpdateContainer changes the sizes that are not zero in r.
func (e *Engine) UpdateContainer(ctx context.Context, id string, r runtime.Resources) error {
	q := &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources(r)}
	_, err := invoke(ctx, e, call{op: "update_container", what: "update container " + id}, e.runtime.UpdateContainerResources, q)
	return err
}

// StopContainer asks a container to end and kills it after grace, in whole seconds.
func (e *Engine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	q := &cri.StopContainerRequest{ContainerId: id, Timeout: seconds(grace)}
	c := call{op: "stop_container", what: "stop container " + id, longer: max(grace, 0)}
	_, err := invoke(ctx, e, c, e.runtime.StopContainer, q)
	return gone(err)
}

// RemoveContainer removes a container.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	q := &cri.RemoveContainerRequest{ContainerId: id}
	_, err := invoke(ctx, e, call{op: "remove_container", what: "remove container " + id}, e.runtime.RemoveContainer, q)
	e.owners.forget(id)
	return gone(err)
}

// Exec runs a command. The runtime is told how long ctx has to live, and kills the command then.
func (e *Engine) Exec(ctx context.Context, id string, cmd []string) (runtime.ExecResult, error) {
	q := &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd}
	if deadline, ok := ctx.Deadline(); ok {
		q.Timeout = max(seconds(time.Until(deadline)), 1) // zero would be no deadline
	}
	c := call{op: "exec_sync", what: "exec in container " + id, endless: true}
	a, err := invoke(ctx, e, c, e.runtime.ExecSync, q)
	if err != nil {
		return runtime.ExecResult{}, err
	}
	return runtime.ExecResult{Code: int(a.GetExitCode()), Output: slices.Concat(a.GetStdout(), a.GetStderr())}, nil
}

// ListContainers is a shallow list.
func (e *Engine) ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error) {
	filter := &cri.ContainerFilter{LabelSelector: selector(f)}
	if f.OnlyAlive {
		filter.State = &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}
	}
	items, err := e.listContainers(ctx, filter)
	if err != nil {
		return nil, err
	}
	if f == (runtime.Filter{}) {
		e.owners.only(items)
	}
	list := make([]runtime.Container, 0, len(items))
	for _, c := range items {
		list = append(list, listedContainer(c))
	}
	return list, nil
}

// listContainers asks, and keeps what only lists tell.
func (e *Engine) listContainers(ctx context.Context, f *cri.ContainerFilter) ([]*cri.Container, error) {
	q := &cri.ListContainersRequest{Filter: f}
	a, err := invoke(ctx, e, call{op: "list_containers", what: "list containers"}, e.runtime.ListContainers, q)
	list := a.GetContainers()
	if err != nil {
		list, err = inPieces(ctx, e, err, call{op: "stream_containers", what: "list containers in pieces"},
			e.runtime.StreamContainers, &cri.StreamContainersRequest{Filter: f}, (*cri.StreamContainersResponse).GetContainers)
	}
	if err != nil {
		return nil, err
	}
	e.owners.learn(list)
	return list, nil
}

// Container is a complete look at one.
func (e *Engine) Container(ctx context.Context, id string) (runtime.Container, error) {
	what := "look at container " + id
	a, err := invoke(ctx, e, call{op: "container_status", what: what}, e.runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return runtime.Container{}, err
	}
	if a.GetStatus() == nil {
		return runtime.Container{}, fmt.Errorf("%s: the runtime answered nothing", what)
	}
	c := seenContainer(a.GetStatus())
	c.SandboxID, err = e.owner(ctx, c.ID)
	return c, err
}
