package imagegc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Containers shows containers, and ends one whose state the engine cannot tell. An engine does. Methods may be called from
// several goroutines at a time.
type Containers interface {
	ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error)
	StopContainer(ctx context.Context, id string, grace time.Duration) error
}

// Sandboxes shows, stops and removes sandboxes. An engine does. One that is gone is no error.
type Sandboxes interface {
	ListSandboxes(ctx context.Context, f runtime.Filter) ([]runtime.Sandbox, error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
}

// Instances removes a container that does not run, its log first. One that is gone is no error. podruntime.Runtime does; an
// engine that writes no logs may do it by its RemoveContainer.
type Instances interface {
	RemoveInstance(ctx context.Context, id string) error
}

// DeadConfig describes a Dead. Containers, Sandboxes, Instances and Removable are required; every other field works at zero.
type DeadConfig struct {
	Containers Containers
	Sandboxes  Sandboxes
	Instances  Instances

	// Removable says that nothing of a pod needs to be kept, as syncloop.Roster does. It must answer from memory.
	Removable func(types.UID) bool

	// Ended says that a pod has ended for good: Reclaim takes all that is dead of it, though it is still known. nil: of none.
	Ended func(types.UID) bool

	PerName  int           // dead instances of one container of one pod that stay; 0: one; negative: any number
	Total    int           // dead containers that stay on the whole node; 0 or negative: any number
	MinAge   time.Duration // containers younger than this stay, counted from their creation; 0: none for that reason
	Interval time.Duration // time between two looks at all pods; 0: one minute

	Observe observe.To
}

// Dead removes dead containers and sandboxes. All methods are safe for concurrent use.
type Dead struct {
	cfg     DeadConfig
	log     *slog.Logger
	removed observe.Metric

	mu   sync.Mutex // guards trim
	trim map[types.UID]struct{}
	bell chan struct{}
}

// NewDead makes a Dead at rest.
func NewDead(cfg DeadConfig) (*Dead, error) {
	if cfg.Containers == nil || cfg.Sandboxes == nil || cfg.Instances == nil || cfg.Removable == nil {
		return nil, errors.New("imagegc: Containers, Sandboxes, Instances and Removable are required")
	}
	cfg.PerName = cmp.Or(cfg.PerName, 1)
	cfg.Total = cmp.Or(cfg.Total, -1)
	cfg.Interval = cmp.Or(cfg.Interval, time.Minute)
	if cfg.MinAge < 0 || cfg.Interval < 0 {
		return nil, fmt.Errorf("imagegc: MinAge %v and Interval %v must not be negative", cfg.MinAge, cfg.Interval)
	}
	if cfg.Ended == nil {
		cfg.Ended = func(types.UID) bool { return false }
	}
	in := cfg.Observe.Instruments()
	removed := in.Counter("kubeletkit_dead_removed_total", "Dead containers and sandboxes removed.", "kind")
	return &Dead{
		cfg: cfg, log: cfg.Observe.Logger(), removed: removed,
		trim: map[types.UID]struct{}{}, bell: make(chan struct{}, 1),
	}, in.Err
}

// Run collects at each interval, and in between trims the pods that Trim was told of. It returns nil once ctx has ended.
func (d *Dead) Run(ctx context.Context) error {
	tick := time.NewTicker(d.cfg.Interval)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			err = d.Collect(ctx)
		case <-d.bell:
			err = d.trimAll(ctx)
		}
		if err != nil && ctx.Err() == nil {
			d.log.Warn("not all that is dead could be removed; next try at the next round", "err", err)
		}
	}
}

// Trim says that a container of that pod died: soon only the newest PerName dead instances of each name are left of it, or
// nothing when it is removable. It never blocks, and may be called before Run.
func (d *Dead) Trim(uid types.UID) {
	d.mu.Lock()
	d.trim[uid] = struct{}{}
	d.mu.Unlock()
	select {
	case d.bell <- struct{}{}:
	default:
	}
}

// Died is Trim for who has just seen the pod: the engine is asked nothing while no name has more dead instances than stay.
func (d *Dead) Died(seen runtime.Pod) {
	dead, most := map[string]int{}, 0
	for i := range seen.Containers {
		if c := &seen.Containers[i]; c.State != runtime.Running {
			dead[c.Name]++
			most = max(most, dead[c.Name])
		}
	}
	if d.cfg.PerName >= 0 && most > d.cfg.PerName || d.cfg.Removable(seen.UID) {
		d.Trim(seen.UID)
	}
}

func (d *Dead) trimAll(ctx context.Context) error {
	d.mu.Lock()
	due := d.trim
	d.trim = map[types.UID]struct{}{}
	d.mu.Unlock()
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(due)) {
		errs = append(errs, d.containers(ctx, runtime.Filter{Pod: uid}, -1, d.cfg.Removable))
	}
	return errors.Join(errs...)
}

// Collect looks at all pods once and removes what exceeds the limits, and all that is dead of removable pods.
func (d *Dead) Collect(ctx context.Context) error { return d.collect(ctx, d.cfg.Removable) }

// Reclaim is Collect for a disk that runs full: of pods that have ended it takes all that is dead, too.
func (d *Dead) Reclaim(ctx context.Context) error { return d.collect(ctx, d.over) }

// over says that what is dead of a pod may go when the disk runs full.
func (d *Dead) over(uid types.UID) bool { return d.cfg.Removable(uid) || d.cfg.Ended(uid) }

// Plan is what Collect would remove now, oldest first, each with its reason.
func (d *Dead) Plan(ctx context.Context) ([]Step, error) { return d.plan(ctx, d.cfg.Removable) }

// PlanReclaim is what Reclaim would remove now, in the form of Plan.
func (d *Dead) PlanReclaim(ctx context.Context) ([]Step, error) { return d.plan(ctx, d.over) }

func (d *Dead) plan(ctx context.Context, all func(types.UID) bool) ([]Step, error) {
	boxes, err := d.cfg.Sandboxes.ListSandboxes(ctx, runtime.Filter{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	list, err := d.cfg.Containers.ListContainers(ctx, runtime.Filter{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	why := func(uid types.UID, unwanted bool, other string) string {
		switch {
		case !unwanted:
			return other
		case d.cfg.Removable(uid):
			return "its pod is no more"
		}
		return "its pod has ended"
	}
	var steps []Step
	goes := map[string]bool{}
	for _, v := range choose(list, d.policy(d.cfg.Total, all)) {
		goes[v.it.ID] = true
		steps = append(steps, Step{
			Kind: "container", ID: v.it.ID, Name: fmt.Sprintf("%s %s#%d", v.it.Pod, v.it.Name, v.it.Restarts),
			Remove: true, Why: why(v.it.Pod.UID, v.unwanted, "enough newer ones of its name are kept"),
		})
	}
	list = keep(list, func(c runtime.Container) bool { return !goes[c.ID] })
	for _, v := range chooseSandboxes(boxes, list, all) {
		steps = append(steps, Step{
			Kind: "sandbox", ID: v.it.ID, Name: v.it.String(), Remove: true, Why: why(v.it.UID, v.unwanted, "a newer one is kept"),
		})
	}
	return steps, nil
}

// policy of a round now.
func (d *Dead) policy(total int, all func(types.UID) bool) policy {
	p := policy{perName: d.cfg.PerName, total: total, all: all}
	if d.cfg.MinAge > 0 {
		p.born = time.Now().Add(-d.cfg.MinAge)
	}
	return p
}

func (d *Dead) collect(ctx context.Context, all func(types.UID) bool) error {
	return errors.Join(d.containers(ctx, runtime.Filter{}, d.cfg.Total, all), d.sandboxes(ctx, all))
}

// containers removes those the filter shows and the limits let go.
func (d *Dead) containers(ctx context.Context, f runtime.Filter, total int, all func(types.UID) bool) error {
	list, err := d.cfg.Containers.ListContainers(ctx, f)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, v := range choose(list, d.policy(total, all)) {
		c := v.it
		if v.unwanted && !all(c.Pod.UID) { // wanted again since
			continue
		}
		if err := d.remove(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("remove dead container %s of pod %s: %w", c.Name, c.Pod, err))
			continue
		}
		d.removed.Record(1, "container")
		d.log.Debug("removed a dead container", "pod", c.Pod.Name, "namespace", c.Pod.Namespace, "uid", c.Pod.UID, "container", c.Name, "id", c.ID)
	}
	return errors.Join(errs...)
}

func (d *Dead) remove(ctx context.Context, c runtime.Container) error {
	if c.State == runtime.Unknown { // it may run
		if err := d.cfg.Containers.StopContainer(ctx, c.ID, grace(c)); err != nil {
			return fmt.Errorf("stop it first: %w", err)
		}
	}
	return d.cfg.Instances.RemoveInstance(ctx, c.ID)
}

// grace is what a container of unknown state has to end itself, as its annotations have it from the pod's spec.
func grace(c runtime.Container) time.Duration {
	const least = 2 * time.Second
	for _, key := range []string{runtime.AnnotationDeletionGracePeriod, runtime.AnnotationTerminationGracePeriod} {
		if seconds, err := strconv.ParseInt(c.Annotations[key], 10, 32); err == nil {
			return max(time.Duration(seconds)*time.Second, least)
		}
	}
	return least
}

// sandboxes removes empty ones. They are listed before the containers: one that is not ready gets none afterwards.
func (d *Dead) sandboxes(ctx context.Context, all func(types.UID) bool) error {
	list, err := d.cfg.Sandboxes.ListSandboxes(ctx, runtime.Filter{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := d.cfg.Containers.ListContainers(ctx, runtime.Filter{})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, v := range chooseSandboxes(list, containers, all) {
		s := v.it
		if v.unwanted && !all(s.UID) { // wanted again since
			continue
		}
		if err := d.removeSandbox(ctx, s.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove dead sandbox %s of pod %s: %w", s.ID, s.PodRef, err))
			continue
		}
		d.removed.Record(1, "sandbox")
		d.log.Debug("removed a dead sandbox", "pod", s.Name, "namespace", s.Namespace, "uid", s.UID, "id", s.ID)
	}
	return errors.Join(errs...)
}

// removeSandbox stops it first: one that died by itself still holds its network.
func (d *Dead) removeSandbox(ctx context.Context, id string) error {
	if err := d.cfg.Sandboxes.StopSandbox(ctx, id); err != nil {
		return fmt.Errorf("stop it first: %w", err)
	}
	return d.cfg.Sandboxes.RemoveSandbox(ctx, id)
}
