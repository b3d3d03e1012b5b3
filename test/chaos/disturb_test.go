package chaos

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

var (
	seeds = flag.Int("seeds", 1, "how many plans TestDisturbances plays, from -seed on")
	lasts = flag.Duration("lasts", 20*time.Second, "how long each disturbs")
)

// Agent and runtime are killed and stopped, one or both, while pods come and go. Afterwards everything is as wanted, and when
// the pods are deleted nothing is left.
func TestDisturbances(t *testing.T) {
	for s := *seed; s < *seed+uint64(*seeds); s++ {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			t.Logf("to have this plan again: make chaos SEED=%d", s)
			n := newNode(t)
			n.Start()
			w := &alone{node: n, t: t}
			d := &driver{world: w, kinds: slices.Concat(services, jobs), patience: patience, log: t.Logf}
			d.steady = []kind{kindNamed("plain"), kindNamed("web"), kindNamed("sidecar")}
			t.Cleanup(w.sweep)
			for _, found := range d.run(t.Context(), plan(s, *lasts, d.kinds, w.Faults())) {
				t.Error(found)
			}
			if w.excused != "" {
				t.Logf("left behind by a runtime that was killed: %s", w.excused)
			}
			for id := range w.cut() {
				t.Logf("containerd gave up starting %s, or a container of it, when its agent died, and may have left something of it", id)
			}
		})
	}
}

// alone is a node without an API server, on a containerd of its own.
type alone struct {
	*node

	t *testing.T

	mu      sync.Mutex      // guards the rest
	seen    map[string]bool // IDs of all that the runtime ever had
	killed  bool            // the runtime was
	excused string          // what it left behind
}

func (a *alone) Want(o op) {
	if o.kind != "" {
		a.Write(o.file(), kindNamed(o.kind).manifest(o.pod(), o.revision))
		return
	}
	if err := os.Remove(filepath.Join(a.Manifests, o.file())); err != nil {
		a.t.Error(err)
	}
}

func (a *alone) Told(ctx context.Context) (map[string]*v1.Pod, error) { return a.told(ctx) }

func (a *alone) View(ctx context.Context) (view, error) {
	v, err := a.view(ctx)
	if err != nil {
		return v, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	for id := range v.ids() {
		a.seen[id] = true
	}
	return v, nil
}

func (a *alone) Mending(ok func() error) func() error { return mending(a.t, a.bed, a.view, ok) }

func (a *alone) Faults() []fault {
	runtime := func(end func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			a.mu.Lock()
			a.killed = true
			a.mu.Unlock()
			return end(ctx)
		}
	}
	start := func(context.Context) error { a.Start(); return nil }
	return []fault{
		{"the agent is killed", "agent", func(context.Context) error { a.Kill(); return nil }, start},
		{"the agent is stopped", "agent", a.stopped, start},
		{"containerd is killed", "runtime", runtime(a.bed.Kill), a.bed.Start},
		{"containerd is stopped", "runtime", runtime(a.bed.Stop), a.bed.Start},
	}
}

// stopped stops the agent. One that does not listen yet is ended by the signal, which is no exit code.
func (a *alone) stopped(context.Context) error {
	if code, took := a.Stop(); code > 0 || took > 30*time.Second {
		return fmt.Errorf("the agent ended with %d after %v", code, round(took))
	}
	return nil
}

// Left looks for what CRI shows, for the agent's files and mounts, and below the runtime. A runtime that was killed cannot
// take away what it was just making, and nobody can ask it to: then that is only logged.
func (a *alone) Left(ctx context.Context, wanted map[string]bool) error {
	v, err := a.View(ctx)
	if err != nil {
		return err
	}
	errs := []error{a.only(ctx, wanted), mounted(filepath.Join(a.Root, "pods"), wanted)}
	below := a.below(v)
	a.mu.Lock()
	defer a.mu.Unlock()
	if below != nil && a.killed {
		if a.excused = below.Error(); errors.Join(errs...) == nil {
			below = nil
		}
	}
	return errors.Join(append(errs, below)...)
}

// mounted is an error when there are mounts in directories of pods that are not wanted.
func mounted(pods string, wanted map[string]bool) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		rest, below := strings.CutPrefix(strings.Fields(line)[4], pods+"/")
		if uid, _, _ := strings.Cut(rest, "/"); below && !wanted[uid] {
			return fmt.Errorf("the mount %s/%s is left", pods, rest)
		}
	}
	return nil
}

// below looks for what belongs to no sandbox or container that CRI shows: network namespaces, addresses, shims, cgroups.
func (a *alone) below(v view) error {
	there, cut := v.ids(), a.cut()
	var errs []error
	left := func(what, id string) {
		if !there[id] && !cut[id] {
			errs = append(errs, fmt.Errorf("%s of %s is left", what, id))
		}
	}
	if spaces := files(filepath.Join(a.bed.Dir(), "state", "*", "netns", "*")); len(spaces) > len(v.sandboxes) {
		errs = append(errs, fmt.Errorf("%d network namespaces are left for %d sandboxes", len(spaces), len(v.sandboxes)))
	}
	for _, lease := range files(filepath.Join(a.bed.Dir(), "ipam", "*", "*.*.*.*")) {
		id, err := os.ReadFile(lease)
		if err == nil {
			id, _, _ := strings.Cut(string(bytes.TrimSpace(id)), "\n")
			left("the address "+filepath.Base(lease), strings.TrimSpace(id))
		}
	}
	for _, dir := range files(filepath.Join(a.bed.Dir(), "runc", "k8s.io", "*")) {
		left("the state", filepath.Base(dir))
	}
	for _, pid := range process.Find(a.isShim) {
		args := process.Arguments(pid)
		if i := slices.Index(args, "-id"); i > 0 && i+1 < len(args) {
			left("a shim", args[i+1])
		}
	}
	for _, dir := range a.cgroups() {
		left("the cgroup", filepath.Base(dir))
	}
	return errors.Join(errs...)
}

// What containerd logs of containers, and of starts whose caller went away meanwhile.
var (
	created          = regexp.MustCompile(`CreateContainer within sandbox \\"([0-9a-f]{64})\\" .* returns container id \\"([0-9a-f]{64})\\"`)
	sandboxGivenUp   = regexp.MustCompile(`failed to start sandbox \\"([0-9a-f]{64})\\": .*context canceled`)
	containerGivenUp = regexp.MustCompile(`StartContainer for \\"([0-9a-f]{64})\\" failed.*context canceled`)
)

// cut are the sandboxes that containerd was making, or starting a container in, for an agent when that was killed. It cancels what
// it does then, and at a bad moment the shim makes the container all the same, of which containerd then knows nothing (its issue
// 11037): nobody can ask it to take that away, and the shim stays for its sake.
func (a *alone) cut() map[string]bool {
	log, err := os.ReadFile(filepath.Join(a.bed.Dir(), "containerd.log"))
	if err != nil {
		a.t.Error(err)
	}
	sandboxOf, out := map[string]string{}, map[string]bool{}
	for _, m := range created.FindAllSubmatch(log, -1) {
		sandboxOf[string(m[2])] = string(m[1])
	}
	for _, m := range sandboxGivenUp.FindAllSubmatch(log, -1) {
		out[string(m[1])] = true
	}
	for _, m := range containerGivenUp.FindAllSubmatch(log, -1) {
		id := string(m[1])
		out[id] = true
		if sandbox, known := sandboxOf[id]; known {
			out[sandbox] = true
		}
	}
	return out
}

// cgroups are those of all that the runtime ever had.
func (a *alone) cgroups() (dirs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range []string{a.Cgroup, "/k8s.io"} { // the other one is where the runtime puts what it is told no place for
		for _, file := range cgroups.Files(at, "cgroup.procs") {
			if dir := filepath.Dir(file); at != "" && a.seen[filepath.Base(dir)] {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// sweep removes what a runtime that was killed left to the machine.
func (a *alone) sweep() {
	for _, dir := range a.cgroups() {
		if err := os.Remove(dir); err != nil {
			a.t.Error(err) // something lives in it
		}
	}
}

func (a *alone) isShim(args []string) bool {
	return len(args) > 0 && strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") &&
		slices.Contains(args, filepath.Join(a.bed.Dir(), "containerd.sock"))
}

// ids are those of all sandboxes and containers.
func (v view) ids() map[string]bool {
	all := map[string]bool{}
	for _, s := range v.sandboxes {
		all[s.GetId()] = true
	}
	for _, c := range v.containers {
		all[c.GetId()] = true
	}
	return all
}
