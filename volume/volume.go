package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Config describes a Manager. Root is required; every other field works at zero.
type Config struct {
	Root string // state of pods; volumes lie at <Root>/pods/<uid>/volumes

	Mounter mount.Interface // nil: system calls on Linux, where mount.New("") would start a process for each mount
	Node    func() *v1.Node // what resourceFieldRef falls back to and volumes in memory are bounded by; nil: unknown
	Memory  int64           // of this machine in bytes, which bounds volumes in memory while Node is unknown; 0: unknown

	Objects      Objects         // of the API server; nil: there is none, and volumes that show its objects are errors
	Tokens       Tokens          // of the API server; nil: there is none, and volumes with tokens are errors
	Bundles      Bundles         // likewise, for trust anchors
	Certificates Certificates    // likewise, for certificates of pods
	Changed      func(types.UID) // hears of pods for which Mount has more to say; it must not block; nil: nobody listens

	// Other puts a volume of any other kind (csi with a driver of yours, ...) in place and says where it lies: in dir, which is
	// there, and empty at first, or elsewhere. It is called at each Mount, one call at a time for one pod, and may answer
	// runtime.ErrInProgress. What it mounts or writes in dir is taken away as of every volume, also when nobody knows the pod any
	// more; what lies elsewhere is its own. nil: such volumes are errors.
	Other func(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string) (runtime.Volume, error)

	Observe observe.To
}

// Manager is a syncloop.Volumes and a syncloop.Sweeper. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics

	detach func(path string) error // takes away a mount that is in use; nil: that cannot be done

	ready chan struct{} // full while something is queued

	mu       sync.Mutex // guards the rest
	pods     map[types.UID]*pod
	queue    []*feed
	sweeping map[types.UID]bool // leftovers that somebody is taking away
	total    map[tally]int      // volumes of all pods
}

// tally is what volumes are counted by.
type tally struct{ plugin, state string }

// States of volumes, as monitoring of kubelets names them.
const (
	wanted  = "desired_state_of_world"
	inPlace = "actual_state_of_world"
)

// pod is what is remembered of one pod, beyond what the disk tells.
type pod struct {
	busy    chan struct{} // full while a call is at work; guards the rest
	volumes map[string]runtime.Volume
	feed    *feed             // nil: nothing comes from the API server
	told    map[string]string // by volume, what people were told that cannot be brought up to date

	users   int            // calls that are at work or wait; the Manager's mutex guards it and those below
	held    map[string]int // by volume, subPaths that a container is being made with
	counted map[tally]int  // of it, among all volumes
}

// New makes a Manager at rest.
func New(cfg Config) (*Manager, error) {
	if !filepath.IsAbs(cfg.Root) {
		return nil, fmt.Errorf("volume: Root is required and must be absolute, but is %q", cfg.Root)
	}
	if cfg.Node == nil {
		cfg.Node = func() *v1.Node { return nil }
	}
	if cfg.Changed == nil {
		cfg.Changed = func(types.UID) {}
	}
	var detach func(string) error
	if cfg.Mounter == nil {
		cfg.Mounter, detach = kernel()
	}
	m, err := newMetrics(cfg.Observe)
	return &Manager{
		cfg: cfg, log: cfg.Observe.Logger(), metrics: m, detach: detach,
		ready: make(chan struct{}, 1), pods: map[types.UID]*pod{}, sweeping: map[types.UID]bool{}, total: map[tally]int{},
	}, err
}

// lock waits for the turn of a call for one pod.
func (m *Manager) lock(ctx context.Context, uid types.UID) (p *pod, unlock func(), err error) {
	if err := checkName("uid", string(uid)); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	p = m.pods[uid]
	if p == nil {
		p = &pod{busy: make(chan struct{}, 1), told: map[string]string{}, held: map[string]int{}}
		m.pods[uid] = p
	}
	p.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		p.users--
		if p.users == 0 && p.volumes == nil && p.feed == nil && len(p.counted) == 0 {
			delete(m.pods, uid)
		}
	}
	select {
	case p.busy <- struct{}{}:
		return p, func() { <-p.busy; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, nil, context.Cause(ctx)
	}
}

// hold counts the subPaths of a volume that a container is being made with.
func (m *Manager) hold(p *pod, volume string, more int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.held[volume] += more
	return p.held[volume]
}

// Mount puts all volumes in place that a container of the pod uses, and says where, by name. The map is shared; it must not
// be changed. Files are brought up to date. An error names each volume that could not be put in place. It is
// runtime.ErrInProgress while answers of the API server are all that is missing: Changed hears of them.
func (m *Manager) Mount(ctx context.Context, pod *v1.Pod) (map[string]runtime.Volume, error) {
	p, unlock, err := m.lock(ctx, pod.UID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	used := usedBy(pod)
	answers := m.supply(ctx, p, pod, used)
	out := map[string]runtime.Volume{}
	has := map[tally]int{}
	var errs, pending []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !used[v.Name] {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		begun := time.Now()
		has[tally{plugin(kindOf(v)), wanted}]++
		place, err := m.mount(ctx, m.request(p, pod, v, answers))
		if errors.Is(err, runtime.ErrInProgress) {
			pending = append(pending, fmt.Errorf("volume %q: %w", v.Name, err))
			continue
		}
		m.metrics.operation("volume_mount", kindOf(v), begun, err)
		if err != nil {
			errs = append(errs, setUpFailed(v.Name, err))
		} else {
			has[tally{plugin(kindOf(v)), inPlace}]++
		}
		out[v.Name] = place
	}
	m.count(p, has)
	err = cmp.Or(errors.Join(errs...), errors.Join(pending...))
	m.waits(p, err != nil)
	if err != nil {
		return nil, err
	}
	p.volumes = out
	return out, nil
}

// count tells how many volumes there are, now that a pod has these.
func (m *Manager) count(p *pod, has map[tally]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if maps.Equal(p.counted, has) {
		return
	}
	changed := map[tally]bool{}
	for t, n := range p.counted {
		m.total[t] -= n
		changed[t] = true
	}
	for t, n := range has {
		m.total[t] += n
		changed[t] = true
	}
	p.counted = has
	for t := range changed {
		m.metrics.volumes.Record(float64(m.total[t]), t.plugin, t.state)
	}
}

func (m *Manager) request(p *pod, pod *v1.Pod, v *v1.Volume, answers map[need]answer) request {
	_, before := p.volumes[v.Name]
	return request{pod: pod, volume: v, held: m.hold(p, v.Name, 0) > 0, before: before, answers: answers, told: p.told}
}

// usedBy are the names of volumes some container mounts.
func usedBy(pod *v1.Pod) map[string]bool {
	used := map[string]bool{}
	for _, c := range podspec.Containers(pod) {
		for _, vm := range c.VolumeMounts {
			used[vm.Name] = true
		}
		for _, d := range c.VolumeDevices {
			used[d.Name] = true
		}
	}
	return used
}

func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.cfg.Root, "pods", string(uid))
}

// dir is where a volume lies: kind is the kubelet's name of it, such as empty-dir.
func (m *Manager) dir(uid types.UID, kind, name string) string {
	return filepath.Join(m.podDir(uid), "volumes", "kubernetes.io~"+kind, name)
}

// marker is the directory whose file "ready" says that an empty directory was made completely.
func (m *Manager) marker(uid types.UID, name string) string {
	return filepath.Join(m.podDir(uid), "plugins", "kubernetes.io~empty-dir", name)
}

// checkName refuses what cannot be the name of a file, or would lead elsewhere.
func checkName(what, s string) error {
	if s == "" || s == "." || s == ".." || len(s) > 255 || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("%s %q cannot name a directory", what, s)
	}
	return nil
}

// isMount says whether something is mounted right there. A mount that has gone bad is taken away.
func (m *Manager) isMount(path string) (bool, error) {
	is, err := m.cfg.Mounter.IsMountPoint(path)
	switch {
	case err == nil:
		return is, nil
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case mount.IsCorruptedMnt(err):
		m.log.Warn("a mount has gone bad and is made anew", "path", path, "err", err)
		return false, m.unmount(path)
	}
	return false, fmt.Errorf("look for a mount: %w", err)
}

func (m *Manager) unmount(path string) error {
	if err := m.cfg.Mounter.Unmount(path); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	return nil
}

type metrics struct{ operations, volumes, swept, unswept observe.Metric }

func newMetrics(to observe.To) (metrics, error) {
	in := to.Instruments()
	return metrics{
		operations: in.Histogram("storage_operation_duration_seconds", "Time to put a volume in place or to take it away.",
			[]float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}, "volume_plugin", "operation_name", "status", "migrated"),
		volumes: in.Gauge("volume_manager_total_volumes", "Volumes that pods are to have, and have.", "plugin_name", "state"),
		swept:   in.Gauge("kubelet_orphan_pod_cleaned_volumes", "Pods that are no more whose volumes the latest sweep removed."),
		unswept: in.Gauge("kubelet_orphan_pod_cleaned_volumes_errors", "Pods that are no more whose volumes the latest sweep could not remove."),
	}, in.Err
}

func (m metrics) operation(name, kind string, begun time.Time, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.operations.Record(time.Since(begun).Seconds(), plugin(kind), name, status, "false")
}

// plugin is what the kubelet calls those who put volumes of a kind in place.
func plugin(kind string) string { return "kubernetes.io/" + kind }
