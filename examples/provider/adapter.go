package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// Provider is what virtual-kubelet asks of a provider (its node.PodLifecycleHandler), written down here: a type that was
// made for it fits without that module. A pod that does not exist is nil, or an error with a method NotFound.
type Provider interface {
	CreatePod(ctx context.Context, pod *v1.Pod) error
	UpdatePod(ctx context.Context, pod *v1.Pod) error
	DeletePod(ctx context.Context, pod *v1.Pod) error
	GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	GetPodStatus(ctx context.Context, namespace, name string) (*v1.PodStatus, error)
	GetPods(ctx context.Context) ([]*v1.Pod, error)
}

// Adapter is a syncloop.Runtime over a Provider. The statuses are the provider's own: give Status to syncloop.Config.
type Adapter struct {
	p     Provider
	known sync.Map // statuses as last seen: types.UID to *v1.PodStatus
}

// Adapt makes an Adapter.
func Adapt(p Provider) *Adapter { return &Adapter{p: p} }

// Pods are all pods of the provider.
func (a *Adapter) Pods(ctx context.Context) ([]runtime.Pod, error) {
	at := time.Now()
	pods, err := a.p.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	var out []runtime.Pod
	for _, pod := range pods {
		s, err := a.p.GetPodStatus(ctx, pod.Namespace, pod.Name)
		switch {
		case s == nil && (err == nil || isNotFound(err)): // it went away in between
		case err != nil:
			return nil, fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		default:
			a.known.Store(pod.UID, s)
			out = append(out, seenAs(pod, s, at))
		}
	}
	return out, nil
}

// Pod is one of them.
func (a *Adapter) Pod(ctx context.Context, uid types.UID) (runtime.Pod, error) {
	at := time.Now()
	pods, err := a.Pods(ctx)
	return one(pods, uid, at), err
}

// seenAs tells of a pod by its status: what runs, and under which ID.
func seenAs(pod *v1.Pod, s *v1.PodStatus, at time.Time) runtime.Pod {
	ref := runtime.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	p := runtime.Pod{PodRef: ref, At: at, Sandboxes: []runtime.Sandbox{{PodRef: ref, ID: string(pod.UID), Ready: s.Phase == v1.PodPending || s.Phase == v1.PodRunning}}}
	if s.PodIP != "" {
		p.IPs = []string{s.PodIP}
	}
	for _, cs := range s.ContainerStatuses {
		id := cmp.Or(cs.ContainerID, fmt.Sprintf("%s/%s/%d", pod.UID, cs.Name, cs.RestartCount))
		c := runtime.Container{Pod: ref, Name: cs.Name, ID: id, SandboxID: string(pod.UID), Image: cs.Image, Restarts: int(cs.RestartCount), State: runtime.Created}
		switch {
		case cs.State.Running != nil:
			c.State, c.Started = runtime.Running, cs.State.Running.StartedAt.Time
		case cs.State.Terminated != nil:
			c.State, c.ExitCode, c.Finished = runtime.Exited, cs.State.Terminated.ExitCode, cs.State.Terminated.FinishedAt.Time
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

// Sync creates a pod the provider does not have, and updates one that it has otherwise. Restarts are the provider's own. A
// provider knows pods by their names: one of a name waits until another of that name is gone.
func (a *Adapter) Sync(ctx context.Context, pod *v1.Pod, _ runtime.SyncInput) (runtime.SyncResult, error) {
	has, err := a.p.GetPod(ctx, pod.Namespace, pod.Name)
	switch {
	case has == nil && (err == nil || isNotFound(err)):
		err = a.p.CreatePod(ctx, pod)
	case err == nil && has.UID != pod.UID:
		return runtime.SyncResult{}, fmt.Errorf("another pod %s/%s, with uid %s: %w", pod.Namespace, pod.Name, has.UID, runtime.ErrInUse)
	case err != nil || equality.Semantic.DeepEqual(has.Spec, pod.Spec):
		return runtime.SyncResult{}, err
	default:
		err = a.p.UpdatePod(ctx, pod)
	}
	return runtime.SyncResult{Acted: err == nil}, err
}

// Stop deletes a pod and waits until the provider says that it is over.
func (a *Adapter) Stop(ctx context.Context, pod *v1.Pod, seen runtime.Pod, _ runtime.Termination) error {
	has, err := a.p.GetPod(ctx, seen.Namespace, seen.Name)
	switch {
	case err != nil || has == nil:
		return ignoreNotFound(err)
	case has.UID != seen.UID: // a newer one of that name
		return nil
	case pod == nil: // nobody knows the spec any more; the provider does
		pod = has
	}
	if err := a.p.DeletePod(ctx, pod); err != nil {
		return ignoreNotFound(err)
	}
	if now, err := a.Pod(ctx, seen.UID); err != nil || now.Running() {
		return errors.Join(err, runtime.ErrInProgress) // seen by the next relist
	}
	return nil
}

// Remove forgets what was known of a pod.
func (a *Adapter) Remove(_ context.Context, uid types.UID, what runtime.Removal) error {
	if what != runtime.Release {
		a.known.Delete(uid)
	}
	return nil
}

// Status is the provider's, as it was last seen. Pods that were refused or have ended are told of as everywhere.
func (a *Adapter) Status(in status.Input) v1.PodStatus {
	known, _ := a.known.Load(in.Pod.UID)
	s, ok := known.(*v1.PodStatus)
	if !ok || in.Rejection != nil || in.Ended {
		return status.Compute(in)
	}
	return *s.DeepCopy()
}

func isNotFound(err error) bool {
	var e interface{ NotFound() bool }
	return errors.As(err, &e) && e.NotFound()
}

func ignoreNotFound(err error) error {
	if isNotFound(err) {
		return nil
	}
	return err
}
