package podruntime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Stop ends all containers of a pod, hooks and sidecar order included, and its sandboxes. It returns nil when nothing of
// the pod runs any more. pod is nil when nobody knows the spec; then containers get the grace their annotations tell, and
// no hook runs. When ctx ends first, a later call goes on; a hook that has begun is not run again.
func (r *Runtime) Stop(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
	grace := plan.Grace(pod, how)
	if pod == nil && how.Grace == 0 {
		grace = recordedGrace(seen)
	}
	if pod == nil {
		pod = unknown(seen)
	}
	r.memory.unfollowAll(pod.UID)
	return r.stop(ctx, pod, plan.Stop(pod, seen, grace))
}

// recordedGrace is what the pod's spec said when its containers were made.
func recordedGrace(seen runtime.Pod) time.Duration {
	for _, c := range seen.Containers {
		for _, key := range []string{runtime.AnnotationDeletionGracePeriod, runtime.AnnotationTerminationGracePeriod} {
			if n, err := strconv.ParseInt(c.Annotations[key], 10, 32); err == nil {
				return max(time.Duration(n)*time.Second, plan.MinGrace)
			}
		}
	}
	return plan.MinGrace
}

// unknown stands for the spec of a pod that nobody knows.
func unknown(seen runtime.Pod) *v1.Pod {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = seen.Namespace, seen.Name, seen.UID
	return pod
}

// stop carries out the stops of a plan, side by side but for those that wait for others.
func (r *Runtime) stop(ctx context.Context, pod *v1.Pod, actions []plan.Action) error {
	ended := make([]chan struct{}, len(actions))
	for i := range ended {
		ended[i] = make(chan struct{})
	}
	start := time.Now()
	var containers, sandboxes errgroup.Group
	for i, a := range actions {
		group := &containers
		if a.Verb == plan.StopSandbox {
			group = &sandboxes
		}
		group.Go(func() error {
			defer close(ended[i])
			if a.Verb == plan.StopSandbox {
				return r.stopSandbox(ctx, a, ended)
			}
			return r.stopContainer(ctx, pod, a, start, ended)
		})
	}
	return errors.Join(containers.Wait(), sandboxes.Wait())
}

func (r *Runtime) stopSandbox(ctx context.Context, a plan.Action, ended []chan struct{}) error {
	for _, i := range a.After {
		select {
		case <-ended[i]:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := r.cfg.Engine.StopSandbox(ctx, a.ID); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", a.ID, err)
	}
	return nil
}

// stopContainer runs the preStop hook, waits for what must end before, and stops a container, all within its grace.
func (r *Runtime) stopContainer(ctx context.Context, pod *v1.Pod, a plan.Action, start time.Time, ended []chan struct{}) (err error) {
	if r.memory.once(pod.UID, killingTold, a.ID) {
		r.tell(pod, a.Container, false, "Killing", a.Why)
	}
	ctx, trace := r.cfg.Observe.Begin(ctx, r.refOf(pod, a.Container), "stop container")
	defer func() { trace.End(err) }()
	r.preStop(ctx, pod, a)
	deadline := time.NewTimer(time.Until(start.Add(a.Grace)))
	defer deadline.Stop()
	for _, i := range a.After {
		select {
		case <-ended[i]:
		case <-deadline.C:
			deadline.Reset(0) // the others have no time left either
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	left := max(a.Grace-time.Since(start).Truncate(time.Second), plan.MinGrace)
	if err := r.cfg.Engine.StopContainer(ctx, a.ID, left); err != nil && !errors.Is(err, runtime.ErrNotFound) {
		return fmt.Errorf("stop container %s: %w", a.Container, err)
	}
	return nil
}
