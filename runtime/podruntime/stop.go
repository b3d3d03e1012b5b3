package podruntime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Stop ends all containers of a pod, hooks and sidecar order included, and its sandboxes. It returns nil when nothing of
// the pod runs any more. pod is nil when nobody knows the spec; then containers get the grace their annotations tell, and
// no hook runs. When ctx ends first, a later call goes on; a hook that has begun is not run
// again, but for one that the engine says nobody was there to run.
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
			if n, err := strconv.ParseInt(c.Annotations[key], 10, 64); err == nil {
				return max(podspec.Seconds(n), plan.MinGrace)
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

// ending is a stop of a plan that is being carried out.
type ending struct {
	plan.Action
	end  time.Time     // when the time of a container is over
	done chan struct{} // closed when it has been stopped, or could not be
	left bool          // once done: it was not stopped, and has time left
}

// unheard is how long beyond its time a container that may not have heard that it is to end is kept from being killed with its
// sandbox: once the runtime is there again, it is to have at least the shortest time there is.
const unheard = 5 * time.Minute

// stop carries out the stops of a plan, side by side but for those that wait for others. Whoever could not be stopped and
// has time left keeps it: its sandbox stays, and the next call goes on. Time runs from the first call, whoever is there to hear.
func (r *Runtime) stop(ctx context.Context, pod *v1.Pod, actions []plan.Action) error {
	all := make([]*ending, len(actions))
	for i, a := range actions {
		all[i] = &ending{Action: a, done: make(chan struct{})}
		if a.Verb == plan.StopContainer {
			all[i].end = r.memory.end(pod.UID, a.ID, time.Now().Add(a.Grace))
		}
	}
	var containers, sandboxes errgroup.Group
	for _, e := range all {
		if e.Verb == plan.StopSandbox {
			sandboxes.Go(func() error { return r.stopSandbox(ctx, pod, e, all) })
			continue
		}
		containers.Go(func() error {
			defer close(e.done)
			err := r.stopContainer(ctx, pod, e, all)
			keeps := e.end
			if errors.Is(err, runtime.ErrUnavailable) { // it may not have heard yet that it is to end
				keeps = keeps.Add(unheard)
			}
			e.left = err != nil && keeps.After(time.Now())
			return err
		})
	}
	return errors.Join(containers.Wait(), sandboxes.Wait())
}

func (r *Runtime) stopSandbox(ctx context.Context, pod *v1.Pod, e *ending, all []*ending) error {
	for _, i := range e.After {
		select {
		case <-all[i].done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if all[i].left {
			return nil // why is told already
		}
	}
	if err := r.cfg.Engine.StopSandbox(ctx, e.ID); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", e.ID, err)
	}
	r.memory.once(pod.UID, sandboxStopped, e.ID)
	return nil
}

// stopContainer runs the preStop hook, waits for what must end before, and stops a container, all within its grace.
func (r *Runtime) stopContainer(ctx context.Context, pod *v1.Pod, e *ending, all []*ending) (err error) {
	if r.memory.once(pod.UID, killingTold, e.ID) {
		r.tell(pod, e.Container, false, "Killing", e.Why)
	}
	ctx, trace := r.cfg.Observe.Begin(ctx, r.refOf(pod, e.Container), "stop container")
	defer func() { trace.End(err) }()
	end, err := r.preStop(ctx, pod, e)
	if err != nil {
		return err
	}
	defer end()
	deadline := time.NewTimer(time.Until(e.end))
	defer deadline.Stop()
	for _, i := range e.After {
		select {
		case <-all[i].done:
			if all[i].left {
				return errors.New("stop container " + e.Container + ": " + all[i].Container + " runs, which needs it")
			}
		case <-deadline.C:
			deadline.Reset(0) // the others have no time left either
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	left := (time.Until(e.end) + time.Second - 1).Truncate(time.Second)
	if err := r.cfg.Engine.StopContainer(ctx, e.ID, max(left, plan.MinGrace)); err != nil && !errors.Is(err, runtime.ErrNotFound) {
		return fmt.Errorf("stop container %s: %w", e.Container, err)
	}
	return nil
}
