package podruntime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kubeletkit/kubeletkit/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/internal/podsizes"
	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// appliedFile has the sizes that containers were given last. Name and format are the kubelet's. When the machine has gone down,
// none of them runs any more.
const appliedFile = "actuated_pods_state"

func newApplied(root string, o observe.To) *podsizes.Store {
	path := ""
	if root != "" {
		path = filepath.Join(root, appliedFile)
	}
	return podsizes.NewStore(path, checkpoint.WriteUntilReboot, func(err error) {
		o.Logger().Error("running containers are taken to have the sizes of their specs", "err", err)
	})
}

// given are the sizes that the containers of a pod, and the pod as a whole, were given; nil when that is not known.
func (r *Runtime) given(uid types.UID) (map[string]runtime.Sizes, *runtime.Sizes) {
	p, known := r.applied.Get(uid)
	if !known {
		return nil, nil
	}
	out := make(map[string]runtime.Sizes, len(p.Containers))
	level := &v1.Pod{Spec: v1.PodSpec{Resources: p.Level}}
	for name, resources := range p.Containers {
		out[name] = plan.SizesOf(level, &v1.Container{Resources: resources})
	}
	return out, plan.LevelOf(level)
}

// note remembers what one container of a pod has, or is about to be started with.
func (r *Runtime) note(pod *v1.Pod, change func(p *podsizes.Pod)) {
	p, known := r.applied.Get(pod.UID)
	if !known {
		p = podsizes.Of(pod)
	}
	p.Containers = maps.Clone(p.Containers)
	if p.Containers == nil {
		p.Containers = map[string]v1.ResourceRequirements{}
	}
	change(&p)
	r.applied.Set(pod.UID, p)
	if err := r.applied.Save(); err != nil {
		// At worst the next agent gives a container once more what it has.
		r.cfg.Observe.Logger().Error("sizes of a pod are not kept over a restart", "ref", refOf(pod).String(), "err", err)
	}
}

// adopt takes what a pod of which nothing is known runs with to be what its spec says.
func (r *Runtime) adopt(pod *v1.Pod) {
	if _, known := r.applied.Get(pod.UID); !known {
		r.applied.Set(pod.UID, podsizes.Of(pod))
	}
}

// starting notes the sizes a container is about to start with. That comes before the start: an agent that dies in between
// finds a container that does not run, and what does not run is not resized.
func (s *step) starting(c *v1.Container) {
	s.note(s.pod, func(p *podsizes.Pod) { p.Containers[c.Name] = c.Resources })
}

// resizes is where the gate of resizing a pod stands.
const resizes = "\x00resize"

// grow gives the pod as a whole the room that the containers need which are to be started or updated.
func (s *step) grow(ctx context.Context, p plan.Plan) error {
	updates := slices.DeleteFunc(slices.Clone(p.Actions), func(a plan.Action) bool { return a.Verb != plan.UpdateContainer })
	s.sizes = podsizes.Of(s.pod)
	if s.began = len(updates) > 0 || plan.ResizingLevel(s.pod, s.in.Seen); s.began {
		if until := s.memory.gate(s.pod.UID, resizes, func() uint64 { return fingerprint(s.sizes) }, s.now); !until.IsZero() {
			s.retry(until)
			s.stuck = true
			return nil
		}
		s.result.Acted = true
		if s.fail(s.fits(ctx, updates)); s.stuck {
			return nil
		}
	}
	if err := s.growCgroup(ctx, p); err != nil {
		err = fmt.Errorf("cgroup of the pod: %w", err)
		if s.began {
			s.fail(err)
			return nil
		}
		s.tell("", true, "FailedCreatePodContainer", "unable to ensure pod container exists: "+err.Error())
		return err
	}
	if s.began && !slices.ContainsFunc(updates, func(a plan.Action) bool { return a.Less }) {
		s.fail(s.updateSandbox(ctx))
	}
	return nil
}

// growCgroup makes the pod's cgroup, unless it is known to be as it should. One in which nothing ran may be gone.
func (s *step) growCgroup(ctx context.Context, p plan.Plan) error {
	if s.cfg.Cgroups == nil || len(p.Actions) == 0 && !s.in.Seen.Running() {
		return nil
	}
	empty := slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.RunSandbox })
	s.memory.with(s.pod.UID, func(p *remembered) {
		s.grown = empty || p.room != fingerprint(s.sizes)
		p.bare = p.bare && !s.grown
	})
	if !s.grown {
		return nil
	}
	return s.cfg.Cgroups.Ensure(ctx, s.pod)
}

// removeCgroup gives back the cgroup of a pod of which nothing runs, once.
func (r *Runtime) removeCgroup(ctx context.Context, uid types.UID) error {
	bare := r.cfg.Cgroups == nil
	r.memory.with(uid, func(p *remembered) { bare = bare || p.bare })
	if bare {
		return nil
	}
	if err := r.cfg.Cgroups.Remove(ctx, uid); err != nil {
		return err
	}
	r.memory.with(uid, func(p *remembered) { p.room, p.bare = 0, true })
	return nil
}

// fail ends the resizing of this step, when there is an error.
func (s *step) fail(err error) {
	if err == nil {
		return
	}
	s.stuck, s.result.Resize = true, err
	now := time.Now()
	until := retryOf(err, now, now)
	s.memory.shut(s.pod.UID, resizes, fingerprint(s.sizes), now, until)
	s.retry(until)
	s.metrics.resizes.Record(float64(now.Sub(s.now).Milliseconds()), "false")
}

// update gives a running container its new amount of one resource. What it has of the other stays.
func (s *step) update(ctx context.Context, a plan.Action) {
	if s.stuck {
		return
	}
	spec, _ := plan.Find(s.pod, a.Container)
	has, _ := s.applied.Get(s.pod.UID)
	next := *spec
	next.Resources = mixed(has.Containers[a.Container], spec.Resources, a.Resource)
	res := s.sizing().container(s.pod, &next)
	grant, err := s.grant(ctx, s.pod, spec)
	if err == nil {
		grant.limit(&res)
		err = s.cfg.Engine.UpdateContainer(ctx, a.ID, res)
		s.pictures.change(s.pod.UID) // it may have been done, error or not
	}
	if err != nil {
		if ctx.Err() == nil {
			s.fail(fmt.Errorf("update %s of container %s: %w", a.Resource, a.Container, err))
		}
		return
	}
	s.note(s.pod, func(p *podsizes.Pod) { p.Containers[a.Container] = next.Resources })
}

// mixed is has, but for one resource as wants has it.
func mixed(has, wants v1.ResourceRequirements, resource v1.ResourceName) v1.ResourceRequirements {
	mix := func(has, wants v1.ResourceList) v1.ResourceList {
		out := maps.Clone(wants) // other resources never change
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if name == resource {
				continue
			}
			delete(out, name)
			if q, ok := has[name]; ok {
				if out == nil {
					out = v1.ResourceList{}
				}
				out[name] = q
			}
		}
		return out
	}
	wants.Requests, wants.Limits = mix(has.Requests, wants.Requests), mix(has.Limits, wants.Limits)
	return wants
}

// settle takes from the pod as a whole what its containers do not need any more.
func (s *step) settle(ctx context.Context, p plan.Plan) {
	if s.stuck {
		return
	}
	if s.began && slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Less }) {
		if err := s.updateSandbox(ctx); err != nil {
			s.fail(err)
			return
		}
	}
	if s.grown {
		if err := s.cfg.Cgroups.Shrink(ctx, s.pod); err != nil {
			s.fail(fmt.Errorf("cgroup of the pod: %w", err))
			return
		}
		s.memory.with(s.pod.UID, func(p *remembered) { p.room = fingerprint(s.sizes) })
	}
	if has, known := s.applied.Get(s.pod.UID); known && !has.Equal(podsizes.Pod{Containers: has.Containers, Level: s.pod.Spec.Resources}) {
		s.note(s.pod, func(p *podsizes.Pod) { p.Level = s.pod.Spec.Resources })
		s.result.Acted = true
	}
	if s.began {
		s.metrics.resizes.Record(float64(time.Since(s.now).Milliseconds()), "true")
	}
}

// updateSandbox tells engines that size a sandbox, such as a virtual machine.
func (s *step) updateSandbox(ctx context.Context) error {
	err := s.cfg.Engine.UpdateSandbox(ctx, s.in.Seen.Sandboxes[0].ID, s.sizing().sandbox(s.pod), s.sizing().overhead(s.pod))
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("update the sandbox: %w", err)
	}
	return nil
}

// fits refuses a memory limit below what a container, or the pod as a whole, uses: the kernel would have to kill it.
func (s *step) fits(ctx context.Context, updates []plan.Action) error {
	limits := map[string]int64{} // by container ID
	for _, a := range updates {
		spec, _ := plan.Find(s.pod, a.Container)
		if limit := plan.SizesOf(s.pod, spec).MemoryLimit; a.Resource == v1.ResourceMemory && lower(limit, s.in.Seen.Applied[a.Container].MemoryLimit) {
			limits[a.ID] = limit
		}
	}
	has, _ := s.applied.Get(s.pod.UID)
	ofPod := s.limitOf(s.pod)
	podLower := lower(ofPod, s.limitOf(has.Over(s.pod)))
	if len(limits) == 0 && !podLower || s.cfg.Stats == nil {
		return nil
	}
	usage, err := s.cfg.Stats.ContainerStats(ctx, runtime.Filter{Pod: s.pod.UID})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return fmt.Errorf("unable to read memory usage: %w", err)
	}
	if errs := tooSmall(s.in.Seen, usage, limits, ofPod, podLower); len(errs) > 0 {
		return fmt.Errorf("cannot decrease memory limits: %w", utilerrors.NewAggregate(errs))
	}
	return nil
}

// limitOf is how much memory a pod may use as a whole. 0: any.
func (s *step) limitOf(pod *v1.Pod) int64 {
	if !podspec.Limited(pod, v1.ResourceMemory) {
		return 0
	}
	return s.sizing().sandbox(pod).Memory
}

// lower says that a limit is below an older one. 0: none.
func lower(limit, had int64) bool { return limit > 0 && (had == 0 || limit < had) }

// tooSmall holds limits, by container ID and of the pod if that is to be lowered, against what is used. What runs uses
// something: where nothing is told, it is not known.
func tooSmall(seen runtime.Pod, usage []runtime.Usage, limits map[string]int64, ofPod int64, podLower bool) (errs []error) {
	uses, all := map[string]int64{}, int64(0)
	for _, u := range usage {
		uses[u.Container] = max(u.Memory, u.WorkingSet) // an engine may tell only one of them
		all += uses[u.Container]
	}
	switch {
	case !podLower:
	case all == 0:
		errs = append(errs, errors.New("missing pod memory usage"))
	case all >= ofPod:
		errs = append(errs, fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", ofPod, all))
	}
	for _, c := range seen.Containers {
		limit, lower := limits[c.ID]
		used, told := uses[c.ID]
		switch {
		case !lower || !told:
		case used == 0:
			errs = append(errs, fmt.Errorf("missing container %q memory usage", c.Name))
		case used >= limit:
			errs = append(errs, fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)", c.Name, limit, used))
		}
	}
	return errs
}
