package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/resource/cgroup"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/stats"
	"github.com/kubeletkit/kubeletkit/status/nodestatus"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// groups are the cgroups of pods. Without a tree pods have none of their own.
type groups struct {
	tree     *cgroup.Tree
	driver   string // how they are named; empty: nobody has said
	enforced bool   // what all pods together may use is limited by what is allocatable
	all      string // the cgroup of all pods; empty: there is none
	flat     podruntime.Cgroups
}

// grouping is what groups are made of.
type grouping struct {
	o       *options
	info    func(ctx context.Context) (runtime.Info, error)
	machine func() (stats.Machine, error)
	roster  *syncloop.Roster
	obs     observe.To
}

// newGroups makes the tree of cgroups, at rest.
func newGroups(ctx context.Context, b *build, c grouping) groups {
	k := c.o.kubelet
	if b.err != nil {
		return groups{}
	}
	if !value(k.CgroupsPerQOS) {
		return groups{flat: oneGroup("/" + k.CgroupRoot)}
	}
	g := groups{driver: c.driver(ctx), enforced: slices.Contains(k.EnforceNodeAllocatable, "pods")}
	k.CgroupDriver = g.driver // as /configz shows it
	cfg := limits(k)
	cfg.Root, cfg.Systemd, cfg.Allocatable = k.CgroupRoot, g.driver == "systemd", one(b, c.allocatable, g.enforced)
	cfg.Pods, cfg.Ours, cfg.Node, cfg.Observe = c.pods, c.ours, c.o.nodeName, c.obs
	g.tree = one(b, cgroup.New, cfg)
	if b.err == nil {
		g.all = g.tree.Path(nil)
	}
	return g
}

// checked is g with the tree in place. A machine that does not let us make it is no reason not to run pods, unless a place for
// it was given by name.
func (g groups) checked(b *build, o *options, log *slog.Logger) groups {
	if g.tree == nil || b.err != nil {
		return g
	}
	switch err := g.tree.Check(); {
	case err != nil && strings.Trim(o.kubelet.CgroupRoot, "/") != "":
		b.err = fmt.Errorf("cgroupRoot (--cgroup-root): %w", err)
	case err != nil:
		log.Warn("pods have no cgroups of their own: nothing limits them together, nor how many processes they have. "+
			"Run as root with cgroups mounted read-write, or set cgroupsPerQOS: false and enforceNodeAllocatable: [none]", "err", err)
		return groups{}
	}
	return g
}

// driver is how the runtime names cgroups. One that does not answer soon is taken to do what the configuration says.
func (c grouping) driver(ctx context.Context) string {
	const tries, pause, patience = 3, time.Second, 2 * time.Second
	for try := range tries {
		own, cancel := context.WithTimeout(ctx, patience)
		info, err := c.info(own)
		cancel()
		switch {
		case err == nil && info.CgroupDriver != "":
			return info.CgroupDriver
		case err == nil, errors.Is(err, errors.ErrUnsupported), try == tries-1:
			return c.o.kubelet.CgroupDriver
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return c.o.kubelet.CgroupDriver
}

// allocatable is what all pods together may use: all that the machine has, without what is reserved where that is enforced.
func (c grouping) allocatable(enforced bool) (func() v1.ResourceList, error) {
	kube, err := nodestatus.ParseReserved(c.o.kubelet.KubeReserved)
	if err != nil {
		return nil, err
	}
	system, err := nodestatus.ParseReserved(c.o.kubelet.SystemReserved)
	if err != nil {
		return nil, err
	}
	return func() v1.ResourceList {
		m, err := c.machine()
		if err != nil {
			return nil // what was set stays
		}
		all := capacityOf(m)
		for name, q := range all {
			if enforced {
				q.Sub(kube[name])
				q.Sub(system[name])
			}
			if q.Sign() < 0 {
				q.Set(0)
			}
			all[name] = q
		}
		return all
	}, nil
}

// pods are those that hold resources; nil until all sources have said which these are.
func (c grouping) pods() []*v1.Pod {
	if !c.roster.Removable("") {
		return nil
	}
	return append([]*v1.Pod{}, c.roster.Active()...)
}

// ours says that a pod was one of this agent's, or of one before it with the same root directory.
func (c grouping) ours(uid types.UID) bool {
	_, err := os.Stat(filepath.Join(c.o.flags.RootDir, "pods", string(uid)))
	return err == nil
}

// capacityOf is what a cgroup can limit of a machine.
func capacityOf(m stats.Machine) v1.ResourceList {
	all := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(m.Cores)*1000, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI),
	}
	if n := host("/").maxThreads(); n > 0 {
		all["pid"] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	for _, size := range slices.Sorted(maps.Keys(m.HugePages)) {
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		all[v1.ResourceName(name)] = *resource.NewQuantity(size*m.HugePages[size], resource.BinarySI)
	}
	return all
}

// ofPods is what makes and removes them; nil: sandboxes lie where the engine puts them.
func (g groups) ofPods() podruntime.Cgroups {
	if g.tree != nil {
		return g.tree
	}
	return g.flat
}

// of is where the cgroup of a pod lies; nil: none has one.
func (g groups) of() func(*v1.Pod) string {
	if g.tree == nil {
		return nil
	}
	return g.tree.Path
}

// kill ends all that runs of a pod; nil: nobody knows what that is.
func (g groups) kill() func(types.UID) error {
	if g.tree == nil {
		return nil
	}
	return g.tree.Kill
}

func (g groups) sweepers() []syncloop.Sweeper {
	if g.tree == nil {
		return nil
	}
	return []syncloop.Sweeper{g.tree}
}

func (g groups) runners() []runner {
	if g.tree == nil {
		return nil
	}
	return []runner{g.tree}
}

// fits is an error for a runtime that names cgroups in another way: what is where cannot be changed while the agent runs.
func (g groups) fits(info runtime.Info) error {
	if g.tree == nil || info.CgroupDriver == "" || info.CgroupDriver == g.driver {
		return nil
	}
	return fmt.Errorf("the runtime's cgroup driver is %s, and the agent has started with %s while the runtime did not answer; start it again, or set cgroupDriver (--cgroup-driver) to %[1]s",
		info.CgroupDriver, g.driver)
}

// oneGroup is where all sandboxes lie.
type oneGroup string

// Parent is the same for all.
func (g oneGroup) Parent(*v1.Pod) string { return string(g) }

// Ensure does nothing: it is there.
func (oneGroup) Ensure(context.Context, *v1.Pod) error { return nil }

// Shrink does nothing.
func (oneGroup) Shrink(context.Context, *v1.Pod) error { return nil }

// Remove does nothing: it is everybody's.
func (oneGroup) Remove(context.Context, types.UID) error { return nil }
