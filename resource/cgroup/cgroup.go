package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
)

// Config describes a Tree. Every field works at zero.
type Config struct {
	Mount   string // where cgroups are mounted; empty: /sys/fs/cgroup
	Root    string // the cgroup, there already, in which kubepods lies; empty: the root of all
	Systemd bool   // names are those of slices, as an engine wants them that has systemd make its cgroups

	PodPids int64         // processes and threads of one pod; 0 or less: any number
	NoQuota bool          // CPU limits are not enforced
	Reserve bool          // with cgroup v2 the kernel keeps for pods the memory they ask for
	Period  time.Duration // of CPU limits; 0: 100 ms
	// Throttle is how far between its request and its limit, 0 to 1, a pod that has sizes as a whole is slowed down for using
	// memory, with cgroup v2; 0: never.
	Throttle float64

	Allocatable func() v1.ResourceList // what all pods together may use (cpu, memory, pid, huge pages); nil: all there is
	Pods        func() []*v1.Pod       // those that hold resources now; nil, or a nil list: not known, and the burstable weigh what they did
	Interval    time.Duration          // between two rounds of Run; 0: a minute

	// Ours says of a pod nobody knows any more whether it was one of this node's. What runs in the cgroup of another is left
	// alone: somebody else may have the same Root. nil: all are ours.
	Ours func(types.UID) bool

	Node    string // that events are about; empty: there are none
	Observe observe.To
}

// Tree keeps the cgroups of pods.
type Tree struct {
	cfg   Config
	files files
	log   *slog.Logger
	took  observe.Metric
	kick  chan struct{}

	mu      sync.Mutex           // one change of the tree at a time; guards the rest
	exact   map[types.UID]values // of pods whose cgroups were given no more and no less
	told    string               // what was said last of the limits of all pods together
	strange map[types.UID]bool   // pods of others that were told of
}

// New makes a Tree at rest.
func New(cfg Config) (*Tree, error) {
	cfg.Mount = cmp.Or(cfg.Mount, "/sys/fs/cgroup")
	cfg.Period = cmp.Or(cfg.Period, 100*time.Millisecond)
	cfg.Interval = cmp.Or(cfg.Interval, time.Minute)
	if cfg.Period < time.Millisecond || cfg.Period > time.Second {
		return nil, fmt.Errorf("cgroup: a period of CPU limits of %v; it must be between 1ms and 1s", cfg.Period)
	}
	if cfg.Interval < 0 {
		return nil, fmt.Errorf("cgroup: Interval %v must not be negative", cfg.Interval)
	}
	if cfg.Ours == nil {
		cfg.Ours = func(types.UID) bool { return true }
	}
	if cfg.Pods == nil {
		cfg.Pods = func() []*v1.Pod { return nil }
	}
	root := path.Clean("/" + cfg.Root)
	if strings.Contains(root, "_") && cfg.Systemd {
		return nil, fmt.Errorf("cgroup: root %s: systemd's names cannot have an underscore", root)
	}
	in := cfg.Observe.Instruments()
	took := in.Histogram("kubelet_cgroup_manager_duration_seconds", "Time to make, change or remove the cgroup of a pod.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "operation_type")
	return &Tree{cfg: cfg, files: openFiles(cfg.Mount, root), log: cfg.Observe.Logger(), took: took, kick: make(chan struct{}, 1), exact: map[types.UID]values{}, strange: map[types.UID]bool{}}, in.Err
}

func (t *Tree) at(n name) string { return n.path(t.cfg.Systemd) }

// Check makes the tree without pods, and says why that cannot be: without the right to, or without a cgroup file system,
// pods have no cgroups.
func (t *Tree) Check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.frame()
}

// frame makes the cgroup of all pods and of the classes. What they are not given now they will be with the next round.
func (t *Tree) frame() error {
	if err := t.files.usable(); err != nil {
		return err
	}
	pods := t.cfg.Pods()
	for _, n := range tiers() {
		if pods == nil && !t.files.exists(t.at(n)) {
			pods = []*v1.Pod{} // new, it would weigh as much as all of the machine's other processes
		}
		if err := t.files.make(t.at(n)); err != nil {
			return err
		}
	}
	if err := t.fill(pods); err != nil {
		t.log.Warn("cgroups above those of pods were not all given their values; next try at the next round", "err", err)
	}
	return nil
}

// fill gives the cgroup of all pods and of the classes what they are to have. The kernel may refuse to take memory that is
// in use; all else is right then.
func (t *Tree) fill(pods []*v1.Pod) error {
	err := errors.Join(t.fillRoot(), t.files.set(t.at(name{kubepods, bestEffort}), t.cfg.tierValues(bestEffort, pods)))
	if pods == nil {
		return err
	}
	return errors.Join(err, t.weigh(pods))
}

// weigh gives the cgroups above those of pods what goes with what the pods ask for.
func (t *Tree) weigh(pods []*v1.Pod) error {
	all := t.cfg.keeps(pods...)
	all.min += all.low // against the rest of the machine
	return errors.Join(t.files.set(t.at(name{kubepods, burstable}), t.cfg.tierValues(burstable, pods)), t.files.set(t.at(name{kubepods}), values{keep: all}))
}

// fillRoot limits all pods together, and tells of it once.
func (t *Tree) fillRoot() error {
	if t.cfg.Allocatable == nil {
		return nil
	}
	err := t.files.set(t.at(name{kubepods}), rootValues(t.cfg.Allocatable()))
	e := observe.Event{About: observe.Ref{Kind: "Node", Name: t.cfg.Node, UID: t.cfg.Node}, Reason: "NodeAllocatableEnforced", Message: "Updated Node Allocatable limit across pods"}
	if err != nil {
		e.Warning, e.Reason = true, "FailedNodeAllocatableEnforcement"
		e.Message = fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", path.Join(t.files.root, t.at(name{kubepods})), err)
	}
	if e.Message != t.told && t.cfg.Node != "" {
		t.cfg.Observe.Event(e)
	}
	t.told = e.Message
	return err
}

// Parent is the cgroup of a pod as engines want to be told where a sandbox goes: a path, with systemd the name of a slice.
func (t *Tree) Parent(pod *v1.Pod) string {
	n := tier(classOf(pod)).pod(pod.UID)
	if t.cfg.Systemd {
		return n.slice()
	}
	return path.Join(t.files.root, n.path(false))
}

// Path is where the cgroup of a pod lies below the mount, as the files of its values are found; that of all pods for nil.
func (t *Tree) Path(pod *v1.Pod) string {
	n := name{kubepods}
	if pod != nil {
		n = tier(classOf(pod)).pod(pod.UID)
	}
	return path.Join(t.files.root, t.at(n))
}

// Ensure makes the cgroup of a pod, or gives the one that is there what it lacks: nothing becomes less.
func (t *Tree) Ensure(_ context.Context, pod *v1.Pod) error {
	return t.change(pod, true)
}

// Shrink takes from the cgroup of a pod what it has too much. The kernel may refuse to take memory that is in use.
func (t *Tree) Shrink(_ context.Context, pod *v1.Pod) error {
	return t.change(pod, false)
}

func (t *Tree) change(pod *v1.Pod, onlyMore bool) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	in := tier(classOf(pod))
	at, wants := t.at(in.pod(pod.UID)), t.cfg.podValues(pod)
	if has, known := t.exact[pod.UID]; known && has.equal(wants) && !onlyMore {
		return nil
	}
	if !t.files.exists(t.at(in)) {
		if err := t.frame(); err != nil {
			return err
		}
	}
	begun, operation := time.Now(), "create"
	if t.files.exists(at) {
		operation = "update"
	}
	defer func() { t.took.Record(time.Since(begun).Seconds(), operation) }()
	gives := wants
	if onlyMore && operation == "update" {
		has, err := t.files.has(at)
		if err != nil {
			return err
		}
		gives = raised(has, wants)
	}
	delete(t.exact, pod.UID)
	if err := t.files.make(at); err != nil {
		return err
	}
	if err := t.files.set(at, gives); err != nil {
		return err
	}
	if gives.equal(wants) {
		t.exact[pod.UID] = wants
	}
	t.changed()
	return nil
}

func (t *Tree) changed() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// checkUID refuses a uid that would lead out of the tree.
func checkUID(uid types.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), "/\x00") {
		return fmt.Errorf("uid %q cannot name a cgroup", uid)
	}
	return nil
}

// Remove kills what is left in the cgroup of a pod, and removes it. One that does not exist is no error.
func (t *Tree) Remove(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	t.forget(uid)
	var errs []error
	for _, in := range tiers() {
		begun := time.Now()
		found, err := t.files.remove(ctx, t.at(in.pod(uid)))
		if err != nil {
			errs = append(errs, fmt.Errorf("cgroup of pod %s: %w", uid, err))
		}
		if found {
			t.took.Record(time.Since(begun).Seconds(), "destroy")
			break // a pod has one
		}
	}
	t.changed()
	return errors.Join(errs...)
}

// Kill ends all that runs in the cgroup of a pod without any grace. It waits for nothing: the pod is to be stopped as usual, too.
func (t *Tree) Kill(uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	for _, in := range tiers() {
		for _, dir := range t.files.dirs(t.at(in.pod(uid))) {
			t.files.killAll(dir)
		}
	}
	return nil
}

// Sweep removes cgroups of pods that are no more, with what still runs in them if they were ours.
func (t *Tree) Sweep(ctx context.Context, keep func(types.UID) bool) error {
	var errs []error
	strange := map[types.UID]bool{}
	for _, in := range tiers() {
		for _, folder := range t.files.list(t.at(in)) {
			uid, ok := in.podOf(folder, t.cfg.Systemd)
			if !ok || keep(uid) {
				continue
			}
			at := path.Join(t.at(in), folder)
			if !t.cfg.Ours(uid) && t.files.busy(at) {
				strange[uid] = true
				t.stranger(uid, at)
				continue
			}
			t.log.Info("a cgroup that was left over is removed", "uid", string(uid))
			t.forget(uid)
			_, err := t.files.remove(ctx, at)
			errs = append(errs, err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.strange, func(uid types.UID, _ bool) bool { return !strange[uid] })
	return errors.Join(errs...)
}

// forget is for a pod whose cgroup goes.
func (t *Tree) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.exact, uid)
}

// stranger tells once of a pod that somebody else runs.
func (t *Tree) stranger(uid types.UID, at string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.strange[uid] {
		t.strange[uid] = true
		t.log.Warn("something runs in the cgroup of a pod that was never one of this node's, and is left alone; if another agent runs here, one of the two needs another cgroup root",
			"cgroup", path.Join(t.files.root, at))
	}
}

// Run keeps the values of the classes and of all pods together right, and those of pods in case somebody has written over
// them, until ctx ends.
func (t *Tree) Run(ctx context.Context) error {
	tick := time.NewTicker(t.cfg.Interval)
	defer tick.Stop()
	for all := true; ; {
		if err := t.round(all); err != nil && ctx.Err() == nil {
			t.log.Warn("cgroups were not all given their values; next try at the next round", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			all = true
		case <-t.kick:
			all = false
			select { // many changes at once are one round
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
			}
		}
	}
}

// round looks after the classes, whose weight goes with their pods, or after all there is.
func (t *Tree) round(all bool) error {
	pods := t.cfg.Pods()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !all && pods != nil && t.files.exists(t.at(name{kubepods, burstable})) {
		return t.weigh(pods)
	}
	if err := t.frame(); err != nil {
		return err
	}
	var errs []error
	for _, p := range pods {
		at := t.at(tier(classOf(p)).pod(p.UID))
		if !t.files.exists(at) {
			continue
		}
		has, err := t.files.has(at)
		if err == nil {
			err = t.files.set(at, raised(has, t.cfg.podValues(p)))
		}
		errs = append(errs, err)
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}
