package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// RunSandbox makes a sandbox and starts it. CRI has no word for a network namespace made by others: a
// NetNS is errors.ErrUnsupported.
func (e *Engine) RunSandbox(ctx context.Context, c *runtime.SandboxConfig) (string, error) {
	what := "run sandbox " + c.Pod.Namespace + "/" + c.Pod.Name
	if c.NetNS != "" {
		return "", fmt.Errorf("%s in network namespace %s: %w", what, c.NetNS, errors.ErrUnsupported)
	}
	q := &cri.RunPodSandboxRequest{Config: sandboxConfig(c), RuntimeHandler: c.Handler}
	begin := time.Now()
	a, err := invoke(ctx, e, call{op: "run_podsandbox", what: what, longer: e.timeout}, e.runtime.RunPodSandbox, q)
	e.metrics.recordSandbox(c.Handler, time.Since(begin), err)
	return named(what, a.GetPodSandboxId(), err)
}

// UpdateSandbox changes the sizes of a sandbox.
func (e *Engine) UpdateSandbox(ctx context.Context, id string, r, overhead runtime.Resources) error {
	q := &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Resources: resources(r), Overhead: always(overhead)}
	_, err := invoke(ctx, e, call{op: "update_podsandbox_resources", what: "update sandbox " + id}, e.runtime.UpdatePodSandboxResources, q)
	if status.Code(err) == codes.Unknown && strings.Contains(err.Error(), "not implemented") { // containerd 2.2 says it without the code
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}

// StopSandbox stops what runs in a sandbox and takes its network back.
func (e *Engine) StopSandbox(ctx context.Context, id string) error {
	q := &cri.StopPodSandboxRequest{PodSandboxId: id}
	_, err := invoke(ctx, e, call{op: "stop_podsandbox", what: "stop sandbox " + id}, e.runtime.StopPodSandbox, q)
	return gone(err)
}

// RemoveSandbox removes a sandbox and its containers.
func (e *Engine) RemoveSandbox(ctx context.Context, id string) error {
	q := &cri.RemovePodSandboxRequest{PodSandboxId: id}
	_, err := invoke(ctx, e, call{op: "remove_podsandbox", what: "remove sandbox " + id}, e.runtime.RemovePodSandbox, q)
	return gone(err)
}

// ListSandboxes is a shallow list.
func (e *Engine) ListSandboxes(ctx context.Context, f runtime.Filter) ([]runtime.Sandbox, error) {
	q := &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: selector(f)}}
	if f.OnlyAlive {
		q.Filter.State = &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}
	}
	a, err := invoke(ctx, e, call{op: "list_podsandbox", what: "list sandboxes"}, e.runtime.ListPodSandbox, q)
	items := a.GetItems()
	if err != nil {
		items, err = inPieces(ctx, e, err, call{op: "stream_podsandboxes", what: "list sandboxes in pieces"},
			e.runtime.StreamPodSandboxes, &cri.StreamPodSandboxesRequest{Filter: q.GetFilter()}, (*cri.StreamPodSandboxesResponse).GetPodSandboxes)
	}
	if err != nil {
		return nil, err
	}
	list := make([]runtime.Sandbox, 0, len(items))
	for _, s := range items {
		list = append(list, listedSandbox(s))
	}
	return list, nil
}

// Sandbox is a complete look at one.
func (e *Engine) Sandbox(ctx context.Context, id string) (runtime.Sandbox, error) {
	what := "look at sandbox " + id
	a, err := invoke(ctx, e, call{op: "podsandbox_status", what: what}, e.runtime.PodSandboxStatus, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return runtime.Sandbox{}, err
	}
	if a.GetStatus() == nil {
		return runtime.Sandbox{}, fmt.Errorf("%s: the runtime answered nothing", what)
	}
	return seenSandbox(a.GetStatus()), nil
}

// named passes on the ID of something new; a runtime that says it worked and gives none is in error.
func named(what, id string, err error) (string, error) {
	if err == nil && id == "" {
		return "", fmt.Errorf("%s: the runtime gave no ID", what)
	}
	return id, err
}

// selector is a filter as labels.
func selector(f runtime.Filter) map[string]string {
	if f.Pod == "" {
		return nil
	}
	return map[string]string{runtime.LabelPodUID: string(f.Pod)}
}
