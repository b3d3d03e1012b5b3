package podruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// groups write down what is done to cgroups, and to sandboxes and containers in between.
type groups struct {
	*runtimetest.Engine
	did  []string
	fail map[string]error
}

func (g *groups) note(format string, args ...any) error {
	g.did = append(g.did, fmt.Sprintf(format, args...))
	return g.fail[strings.Fields(format)[0]]
}

func (g *groups) take() []string { did := g.did; g.did = nil; return did }

func (g *groups) Parent(pod *v1.Pod) string { return "/pods/" + string(pod.UID) }
func (g *groups) Ensure(_ context.Context, pod *v1.Pod) error {
	return g.note("ensure %s", pod.Spec.Containers[0].Resources.Requests.Cpu())
}

func (g *groups) Shrink(_ context.Context, pod *v1.Pod) error {
	return g.note("shrink %s", pod.Spec.Containers[0].Resources.Requests.Cpu())
}
func (g *groups) Remove(_ context.Context, uid types.UID) error { return g.note("remove %s", uid) }

func (g *groups) RunSandbox(ctx context.Context, c *runtime.SandboxConfig) (string, error) {
	_ = g.note("sandbox in %s", c.CgroupParent)
	return g.Engine.RunSandbox(ctx, c)
}

func (g *groups) UpdateContainer(ctx context.Context, id string, r runtime.Resources) error {
	_ = g.note("update to %d", r.CPUShares)
	return g.Engine.UpdateContainer(ctx, id, r)
}

func TestCgroups(t *testing.T) {
	g := &groups{fail: map[string]error{}}
	n := newNode(t, func(c *Config) { g.Engine = c.Engine.(*runtimetest.Engine); c.Engine, c.Cgroups = g, g })
	p := sized(pod(polite), 0, "cpu=100m")
	did := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, g.take()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}

	g.fail["ensure"] = errors.New("boom")
	if _, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); err == nil || !slices.Contains(n.events, "FailedCreatePodContainer") {
		t.Errorf("%v, %v", err, n.events)
	}
	did("without a cgroup no sandbox", "ensure 100m")
	g.fail["ensure"] = nil
	n.sync(p)
	did("a new pod", "ensure 100m", "sandbox in /pods/u-1", "shrink 100m")
	n.sync(p)
	did("nothing has changed")

	p = sized(p, 0, "cpu=300m")
	n.sync(p)
	did("a resize", "ensure 300m", "update to 307", "shrink 300m")

	p = sized(p, 0, "cpu=200m")
	g.fail["ensure"] = errors.New("boom")
	if result, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); err != nil || result.Resize == nil || !plan.Resizing(p, n.look(p)) {
		t.Errorf("%+v, %v", result, err)
	}
	did("without room no update", "ensure 200m")
	g.fail["ensure"] = nil

	p, g.fail["shrink"] = sized(p, 0, "cpu=250m"), errors.New("in use")
	if result, _ := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); result.Resize == nil || result.RetryAt.IsZero() {
		t.Errorf("%+v", result)
	}
	did("room that is in use", "ensure 250m", "update to 256", "shrink 250m")
	g.fail["shrink"] = nil
	n.sync(p)
	did("is asked for again", "ensure 250m", "shrink 250m")

	next, err := New(n.cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Runtime = next
	n.sync(p)
	did("another agent looks once", "ensure 250m", "shrink 250m")
	if err := n.Stop(t.Context(), p, n.look(p), runtime.Termination{}); err != nil {
		t.Fatal(err)
	}
	for _, what := range []runtime.Removal{runtime.Release, runtime.Purge} {
		if err := n.Remove(t.Context(), p.UID, what); err != nil {
			t.Fatal(err)
		}
	}
	did("the end", "remove u-1")
}

// Whoever keeps cgroups, such as systemd, may have removed one in which nothing ran.
func TestTheCgroupOfAPodIsThereForEachSandbox(t *testing.T) {
	g := &groups{fail: map[string]error{}}
	n := newNode(t, func(c *Config) { g.Engine = c.Engine.(*runtimetest.Engine); c.Engine, c.Cgroups = g, g })
	p := pod(polite)
	n.sync(p)
	g.EndSandbox(n.look(p).Sandboxes[0].ID)
	_ = g.take()
	n.sync(p)
	if did := g.take(); len(did) < 2 || !strings.HasPrefix(did[0], "ensure") || !strings.HasPrefix(did[1], "sandbox") {
		t.Errorf("for another sandbox: %q", did)
	}
}
