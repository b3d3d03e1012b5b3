package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/internal/layers"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/pleg"
	probes "github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/probe/podprobe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
	"github.com/kubeletkit/kubeletkit/syncloop/offline"
	"github.com/kubeletkit/kubeletkit/volume"
)

// Config describes an Agent. Sources, Sink, Engine and Root are required; every other field works at zero.
type Config struct {
	Sources map[string]syncloop.PodSource // what is to run, by name
	Sink    syncloop.StatusSink           // who is told how it runs
	Engine  runtime.Engine                // what runs containers
	Root    string                        // directory for the state of pods, absolute, of this agent alone

	Remember bool // what the sources wanted last is kept below Root, and runs at the next start until they can be asked

	Notifier runtime.Notifier    // the engine, if it tells of changes; nil: they are found by asking it each second
	Reopen   runtime.LogReopener // the engine, if it opens logs anew; nil: logs are not rotated
	Images   podruntime.Images   // nil: nothing is pulled
	GRPC     podprobe.GRPC       // nil: gRPC probes stay undecided

	// OtherVolumes puts volumes in place of kinds that package volume does not know; see Other of its Config. nil: such are errors.
	OtherVolumes func(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string) (runtime.Volume, error)

	Admit   []syncloop.Admitter // nil: Standard(Engine)
	HostIPs func() []string     // this machine's addresses, the primary one first; nil: unknown
	LogRoot string              // log files; empty: logs below Root
	Scheme  string              // of container IDs in statuses, such as containerd; empty: unknown

	Observe observe.To
}

// Agent keeps pods as its sources want them. Make one with New. All methods are safe for concurrent use.
type Agent struct {
	roster  *syncloop.Roster
	pods    *podruntime.Runtime
	volumes *volume.Manager
	health  map[string]func() error
	layers  [][]layers.Part // the lowest first
	ran     atomic.Bool
}

// New joins the parts. Nothing is started, and nothing is read or written.
func New(cfg Config) (*Agent, error) {
	if len(cfg.Sources) == 0 || cfg.Sink == nil || cfg.Engine == nil {
		return nil, errors.New("agent: Sources, Sink and Engine are required")
	}
	if !filepath.IsAbs(cfg.Root) {
		return nil, fmt.Errorf("agent: Root is required and must be absolute, not %q", cfg.Root)
	}
	cfg.LogRoot = cmp.Or(cfg.LogRoot, filepath.Join(cfg.Root, "logs"))
	if cfg.Admit == nil {
		cfg.Admit = Standard(cfg.Engine)
	}
	a, err := join(cfg)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// Standard are the standard refusals, for a node of unknown size. An agent with rules of its own appends them.
func Standard(engine runtime.Engine) []syncloop.Admitter {
	return []syncloop.Admitter{admit.Sysctls{}, admit.Platform{Info: engine.Info}, admit.Fit{}, admit.Claims{}}
}

func join(cfg Config) (*Agent, error) {
	roster := new(syncloop.Roster)
	volumes, err := volume.New(volume.Config{Root: cfg.Root, Changed: roster.Wake, Other: cfg.OtherVolumes, Observe: cfg.Observe})
	if err != nil {
		return nil, err
	}
	pods, err := podruntime.New(podruntime.Config{
		Engine: cfg.Engine, Images: cfg.Images, Subpaths: volumes, HostIPs: cfg.HostIPs,
		Root: cfg.Root, LogRoot: cfg.LogRoot, Changed: roster.Wake, Observe: cfg.Observe,
	})
	if err != nil {
		return nil, err
	}
	dead, err := imagegc.NewDead(imagegc.DeadConfig{
		Containers: cfg.Engine, Sandboxes: cfg.Engine, Instances: pods, Removable: roster.Removable, Observe: cfg.Observe,
	})
	if err != nil {
		return nil, err
	}
	lifecycle, err := pleg.New(pleg.Config{
		Source: pods, Notifier: cfg.Notifier, Busy: roster.Busy, Observe: cfg.Observe,
		Tell: func(e pleg.Event) { roster.Wake(e.Pod.UID) }, Died: dead.Died,
	})
	if err != nil {
		return nil, err
	}
	health, err := probes.New(probes.Config{Exec: cfg.Engine, GRPC: cfg.GRPC, HostIPs: cfg.HostIPs, Changed: roster.Wake, Observe: cfg.Observe})
	if err != nil {
		return nil, err
	}
	statuses, err := status.New(status.Config{Sink: cfg.Sink, Observe: cfg.Observe})
	if err != nil {
		return nil, err
	}
	sources, err := remembered(cfg)
	if err != nil {
		return nil, err
	}
	loop, err := syncloop.New(syncloop.Config{
		Sources: sources, Runtime: pods, Sink: statuses, Volumes: volumes, Probes: health, States: pods.Over(lifecycle),
		Roster: roster, Admit: cfg.Admit, Sweepers: []syncloop.Sweeper{volumes, pods}, State: cfg.Root,
		HostIPs: cfg.HostIPs, RuntimeName: func() string { return cfg.Scheme }, Observe: cfg.Observe,
	})
	if err != nil {
		return nil, err
	}
	guards := []layers.Part{dead}
	if cfg.Reopen != nil {
		rotator, err := logs.NewRotator(logs.RotatorConfig{Containers: cfg.Engine, Reopen: cfg.Reopen, Log: cfg.Observe.Logger()})
		if err != nil {
			return nil, err
		}
		guards = append(guards, rotator)
	}
	return &Agent{
		roster: roster, pods: pods, volumes: volumes,
		health: map[string]func() error{"syncloop": loop.Healthy, "pleg": lifecycle.Healthy},
		layers: [][]layers.Part{{statuses}, {lifecycle, health, volumes}, {loop}, guards},
	}, nil
}

// remembered are the sources, behind a memory if there is to be one.
func remembered(cfg Config) (map[string]syncloop.PodSource, error) {
	if !cfg.Remember {
		return cfg.Sources, nil
	}
	sources := map[string]syncloop.PodSource{}
	for name, s := range cfg.Sources {
		switch {
		case s == nil:
			return nil, fmt.Errorf("Sources[%q] is nil", name) //nolint:staticcheck // the field's name
		case name != filepath.Base(name) || name == "." || name == "..":
			return nil, fmt.Errorf("what source %q wants cannot be remembered: its name must be one for a directory", name)
		}
		cache, err := offline.New(offline.Config{Dir: filepath.Join(cfg.Root, "remembered", name), Source: s, Observe: cfg.Observe})
		if err != nil {
			return nil, err
		}
		sources[name] = cache
	}
	return sources, nil
}

// Run keeps the pods running until ctx ends or a part fails. It returns nil once ctx has ended and all parts have; the pods
// go on. It is called once.
func (a *Agent) Run(ctx context.Context) error {
	if !a.ran.CompareAndSwap(false, true) {
		return errors.New("agent: Run was called before; New makes another agent, which takes over the pods")
	}
	return layers.Run(ctx, a.layers...)
}

// Roster is who is on this node.
func (a *Agent) Roster() *syncloop.Roster { return a.roster }

// Runtime makes the pods. It answers what runs, and their logs.
func (a *Agent) Runtime() *podruntime.Runtime { return a.pods }

// Health is what says whether the parts are well, by name, as server.Config wants it.
func (a *Agent) Health() map[string]func() error { return a.health }

// End ends all pods that the engine shows, each with its grace, and removes every trace of them. It is for a machine that is
// to be emptied, and not called while Run runs. One pod that cannot be ended keeps no other: those that have ended are
// returned beside the error.
func (a *Agent) End(ctx context.Context) (ended []runtime.PodRef, err error) {
	all, err := a.pods.Pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var (
		mu sync.Mutex // guards ended and err
		wg sync.WaitGroup
	)
	for _, p := range all {
		wg.Go(func() {
			failure := a.end(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			if failure != nil {
				err = errors.Join(err, fmt.Errorf("end pod %s/%s: %w", p.Namespace, p.Name, failure))
			} else {
				ended = append(ended, p.PodRef)
			}
		})
	}
	wg.Wait()
	return ended, err
}

func (a *Agent) end(ctx context.Context, p runtime.Pod) error {
	if err := a.pods.Stop(ctx, nil, p, runtime.Termination{}); err != nil {
		return err
	}
	if err := a.volumes.Unmount(ctx, p.UID); err != nil {
		return err
	}
	return a.pods.Remove(ctx, p.UID, runtime.Purge)
}
