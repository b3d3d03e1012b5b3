package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// world is a node that is disturbed while pods come and go on it.
type world interface {
	// Want says that a pod is to be there as its kind and revision say, in the place of an older one; without a kind, that
	// it is to be there no longer. It does not wait.
	Want(o op)
	// Told is what is told of the pods, by the names in their manifests.
	Told(ctx context.Context) (map[string]*v1.Pod, error)
	// View is what the runtime has.
	View(ctx context.Context) (view, error)
	// Left is an error when there is anything of pods of other UIDs.
	Left(ctx context.Context, wanted map[string]bool) error
	// Mending is ok with help for what is known to need some.
	Mending(ok func() error) func() error
	Faults() []fault
}

// driver plays plans on a world and holds it against what must always be true, and what must be true soon after the last
// fault has ended.
type driver struct {
	world    world
	kinds    []kind        // of pods that come and go
	steady   []kind        // of pods that nobody touches
	patience time.Duration // for anything to become true after the last fault
	log      func(format string, args ...any)

	mu    sync.Mutex // guards the rest
	found []string
	away  bool // the runtime was, for a while
}

// excused says that a pod has ended in another way than it would have undisturbed, and must have.
func (d *driver) excused(p *v1.Pod) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return startWasCut(p) || d.away && endWasLost(p)
}

// bad keeps what is wrong.
func (d *driver) bad(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, fmt.Sprintf(format, args...))
}

// run plays a plan and tells what was wrong.
func (d *driver) run(ctx context.Context, steps []step) []string {
	wanted := map[string]kind{}
	for i, k := range d.steady {
		o := op{slot: slots + i, kind: k.name}
		d.world.Want(o)
		wanted[o.pod()] = k
	}
	if d.within(ctx, max(d.patience, patience), "the pods that nobody touches are ready", d.settled(ctx, wanted)); len(d.found) > 0 {
		return d.found
	}
	w := &watcher{view: d.world.View, report: d.bad, tolerant: true}
	firm, err := d.firm(ctx)
	if err != nil {
		return append(d.found, err.Error())
	}
	w.start(ctx, firm...)
	listening := d.listen(ctx)
	for s := range pace(ctx, steps) {
		w.during("%s", s)
		d.log("%s", s)
		d.do(ctx, s, wanted)
	}
	w.during("the rest after the last step")
	d.within(ctx, d.patience, "all is as wanted", d.world.Mending(d.settled(ctx, wanted)))
	w.during("the end")
	w.release() // from here on they go too
	for name := range wanted {
		d.world.Want(op{slot: slotOf(name)})
	}
	d.within(ctx, d.patience, "nothing is left", d.world.Mending(func() error { return d.world.Left(ctx, nil) }))
	w.stop()
	listening()
	d.log("%s", w)
	return d.found
}

// pace yields each step when its time has come.
func pace(ctx context.Context, steps []step) func(func(step) bool) {
	return func(yield func(step) bool) {
		begun := time.Now()
		for _, s := range steps {
			select {
			case <-time.After(time.Until(begun.Add(s.at))):
			case <-ctx.Done():
				return
			}
			if !yield(s) {
				return
			}
		}
	}
}

// do takes a step.
func (d *driver) do(ctx context.Context, s step, wanted map[string]kind) {
	switch {
	case s.fault == nil:
		d.world.Want(s.op)
		delete(wanted, s.op.pod())
		if s.op.kind != "" {
			wanted[s.op.pod()] = kindNamed(s.op.kind)
		}
	case s.ends:
		if err := s.fault.mend(ctx); err != nil {
			d.bad("the end of a fault (%s): %v", s.fault.name, err)
		}
	default:
		if s.fault.target == "runtime" {
			d.mu.Lock()
			d.away = true
			d.mu.Unlock()
		}
		if err := s.fault.do(ctx); err != nil {
			d.bad("%s: %v", s.fault.name, err)
		}
	}
}

// settled says whether the pods are as wanted, and nothing else is there.
func (d *driver) settled(ctx context.Context, wanted map[string]kind) func() error {
	return func() error {
		v, err := d.world.View(ctx)
		if err != nil {
			return err
		}
		told, err := d.world.Told(ctx)
		if err != nil {
			return err
		}
		uids, err := settled(wanted, told, v, d.excused)
		return errors.Join(err, d.world.Left(ctx, uids))
	}
}

// within waits until something is true.
func (d *driver) within(ctx context.Context, limit time.Duration, what string, ok func() error) {
	begun := time.Now()
	for {
		err := ok()
		took := time.Since(begun)
		switch {
		case err == nil:
			d.log("%s after %v", what, round(took))
			return
		case ctx.Err() != nil || took > limit:
			d.bad("not within %v: %s: %v", limit, what, err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// firm are the running containers.
func (d *driver) firm(ctx context.Context) ([]*cri.Container, error) {
	v, err := d.world.View(ctx)
	return slices.DeleteFunc(v.containers, func(c *cri.Container) bool {
		return c.GetState() != cri.ContainerState_CONTAINER_RUNNING
	}), err
}

// listen hears what is told of pods until it is called off: no count of restarts may fall.
func (d *driver) listen(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		var h hearing
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			if told, err := d.world.Told(ctx); err == nil { // while a fault lasts there may be nobody who tells
				for _, lie := range h.take(told) {
					d.bad("%s", lie)
				}
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// hearing holds what is told of pods against what was told before. The zero value has heard nothing.
type hearing struct {
	counts map[of]int32
}

func (h *hearing) take(told map[string]*v1.Pod) (lies []string) {
	if h.counts == nil {
		h.counts = map[of]int32{}
	}
	for _, pod := range slices.Sorted(maps.Keys(told)) {
		p := told[pod]
		for container, count := range restarts(p) {
			n := of{string(p.UID), container}
			if before := h.counts[n]; count < before {
				lies = append(lies, fmt.Sprintf("restarts of container %s of pod %s were told to be %d, now %d", container, pod, before, count))
			}
			h.counts[n] = count
		}
	}
	return lies
}

// slotOf is the slot of a pod of this name.
func slotOf(pod string) (slot int) {
	if _, err := fmt.Sscanf(strings.TrimPrefix(pod, "churn-"), "%d", &slot); err != nil {
		panic(err) // only ops make pods
	}
	return slot
}
