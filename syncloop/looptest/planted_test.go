package looptest_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/looptest"
)

// planted in the environment names the fault of the runtime that TestPlanted gives to the suite.
const planted = "KUBELETKIT_PLANTED_FAULT"

// TestPlantedFaultsAreFound gives the suite a runtime with one fault, in a process of its own, where the rule that is meant
// for it must fail and say so.
func TestPlantedFaultsAreFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said sync.Map
	var g errgroup.Group
	g.SetLimit(8) // they wait most of the time
	for name, f := range faults() {
		g.Go(func() error {
			said.Store(name, played(t.Context(), self, name, f.rule))
			return nil
		})
	}
	_ = g.Wait() // what was said is looked at
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			out, _ := said.Load(name)
			text, _ := out.(string)
			if !strings.Contains(text, "--- FAIL: TestPlanted/"+strings.ReplaceAll(f.rule, " ", "_")) {
				t.Fatalf("the rule %q does not find it:\n%s", f.rule, text)
			}
			for _, want := range []string{"broken: " + f.rule, "seen: ", "remedy: ", f.says} {
				if !strings.Contains(text, want) {
					t.Errorf("the rule %q finds it, but does not say %q:\n%s", f.rule, want, text)
				}
			}
		})
	}
}

// played is what one rule says of a fixture, in a process of its own.
func played(ctx context.Context, self, name, rule string) string {
	test := regexp.QuoteMeta(strings.ReplaceAll(rule, " ", "_"))
	cmd := exec.CommandContext(ctx, self, "-test.run", "^TestPlanted$/^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), planted+"="+name)
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s%v", out, err)
}

// misuses are fixtures that say something else than they mean to.
func misuses() map[string]fault {
	const rule = "what cannot be started is told and tried again later"
	return map[string]fault{
		"no runtime":        {rule, "Fixture.Runtime is nil", func(f *looptest.Fixture) { f.Runtime = nil }},
		"negative patience": {rule, "Fixture.Patience -1s must not be negative", func(f *looptest.Fixture) { f.Patience = -time.Second }},
		"an exception to no rule": {
			rule, `Fixture.Except["a pod runs"]: there is no such rule`, func(f *looptest.Fixture) { f.Except = map[string]string{"a pod runs": "never"} },
		},
		"an exception": {rule, "excepted: all images are here", func(f *looptest.Fixture) { f.Except = map[string]string{rule: "all images are here"} }},
		"a field less": {rule, "not tested: " + rule + ": Fixture.Broken is nil", func(f *looptest.Fixture) { f.Broken = nil }},
	}
}

func TestMisuseIsNamed(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range misuses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := played(t.Context(), self, name, m.rule); !strings.Contains(text, m.says) {
				t.Errorf("it does not say %q:\n%s", m.says, text)
			}
		})
	}
}

// TestPlanted is the suite on the fixture with the fault that is asked for; without one there is nothing to test.
func TestPlanted(t *testing.T) {
	all := faults()
	maps.Copy(all, misuses())
	f, ok := all[os.Getenv(planted)]
	if !ok {
		return
	}
	looptest.Run(t, func(t *testing.T) looptest.Fixture {
		t.Helper()
		fixture := right(t)
		f.plant(&fixture)
		return fixture
	})
}

// fault is a mistake that somebody who writes a runtime may make.
type fault struct {
	rule, says string // who finds it, and what is said then
	plant      func(*looptest.Fixture)
}

// bent is a runtime of which some calls do something else.
type bent struct {
	syncloop.Runtime
	pods   func(context.Context) ([]runtime.Pod, error)
	pod    func(context.Context, types.UID) (runtime.Pod, error)
	sync   func(context.Context, *v1.Pod, runtime.SyncInput) (runtime.SyncResult, error)
	stop   func(context.Context, *v1.Pod, runtime.Pod, runtime.Termination) error
	remove func(context.Context, types.UID, runtime.Removal) error
}

func (b bent) Pods(ctx context.Context) ([]runtime.Pod, error) {
	if b.pods != nil {
		return b.pods(ctx)
	}
	return b.Runtime.Pods(ctx)
}

func (b bent) Pod(ctx context.Context, uid types.UID) (runtime.Pod, error) {
	if b.pod != nil {
		return b.pod(ctx, uid)
	}
	return b.Runtime.Pod(ctx, uid)
}

func (b bent) Sync(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
	if b.sync != nil {
		return b.sync(ctx, pod, in)
	}
	return b.Runtime.Sync(ctx, pod, in)
}

func (b bent) Stop(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
	if b.stop != nil {
		return b.stop(ctx, pod, seen, how)
	}
	return b.Runtime.Stop(ctx, pod, seen, how)
}

func (b bent) Remove(ctx context.Context, uid types.UID, what runtime.Removal) error {
	if b.remove != nil {
		return b.remove(ctx, uid, what)
	}
	return b.Runtime.Remove(ctx, uid, what)
}

// bend makes the runtime of a fixture another, and that of the next agent too.
func bend(how func(right syncloop.Runtime) bent) func(*looptest.Fixture) {
	return func(f *looptest.Fixture) {
		wrap := func(r syncloop.Runtime) syncloop.Runtime {
			b := how(r)
			b.Runtime = r
			return b
		}
		f.Runtime = wrap(f.Runtime)
		next := f.Next
		f.Next = func() syncloop.Runtime { return wrap(next()) }
	}
}

// bendNext makes only that of the next agent another.
func bendNext(how func(right syncloop.Runtime) bent) func(*looptest.Fixture) {
	return func(f *looptest.Fixture) {
		first := f.Runtime
		bend(how)(f)
		f.Runtime = first
	}
}

// shown is a runtime whose looks, and lists if that is wished, show something else. It acts on what is true.
func shown(lists bool, change func(*runtime.Pod)) func(*looptest.Fixture) {
	return bend(func(r syncloop.Runtime) bent {
		b := bent{
			pod: func(ctx context.Context, uid types.UID) (runtime.Pod, error) {
				p, err := r.Pod(ctx, uid)
				p = own(p)
				change(&p)
				return p, err
			},
			sync: func(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				seen, err := r.Pod(ctx, pod.UID)
				if err != nil {
					return runtime.SyncResult{}, err
				}
				in.Seen = seen
				return r.Sync(ctx, pod, in)
			},
			stop: func(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				seen, err := r.Pod(ctx, seen.UID)
				if err != nil {
					return err
				}
				return r.Stop(ctx, pod, seen, how)
			},
		}
		if lists {
			b.pods = listing(r, change)
		}
		return b
	})
}

// listed is a runtime whose lists show something else.
func listed(change func(*runtime.Pod)) func(*looptest.Fixture) {
	return bend(func(r syncloop.Runtime) bent { return bent{pods: listing(r, change)} })
}

func listing(r syncloop.Runtime, change func(*runtime.Pod)) func(context.Context) ([]runtime.Pod, error) {
	return func(ctx context.Context) ([]runtime.Pod, error) {
		all, err := r.Pods(ctx)
		for i := range all {
			all[i] = own(all[i])
			change(&all[i])
		}
		return all, err
	}
}

// own is a copy that may be changed.
func own(p runtime.Pod) runtime.Pod {
	p.Containers, p.Sandboxes = slices.Clone(p.Containers), slices.Clone(p.Sandboxes)
	return p
}

// each changes all containers.
func each(change func(*runtime.Container)) func(*runtime.Pod) {
	return func(p *runtime.Pod) {
		for i := range p.Containers {
			change(&p.Containers[i])
		}
	}
}

// synced is a runtime with another Sync, which gets the right one.
func synced(how func(ctx context.Context, right syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error)) func(*looptest.Fixture) {
	return bend(func(r syncloop.Runtime) bent {
		return bent{sync: func(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
			return how(ctx, r, pod, in)
		}}
	})
}

// stopped is a runtime with another Stop, which gets the right one.
func stopped(how func(ctx context.Context, right syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error) func(*looptest.Fixture) {
	return bend(func(r syncloop.Runtime) bent {
		return bent{stop: func(ctx context.Context, pod *v1.Pod, seen runtime.Pod, t runtime.Termination) error {
			return how(ctx, r, pod, seen, t)
		}}
	})
}

// removed is a runtime with another Remove, which gets the right one.
func removed(how func(ctx context.Context, right syncloop.Runtime, uid types.UID, what runtime.Removal) error) func(*looptest.Fixture) {
	return bend(func(r syncloop.Runtime) bent {
		return bent{remove: func(ctx context.Context, uid types.UID, what runtime.Removal) error { return how(ctx, r, uid, what) }}
	})
}

// deaf is a context that ends later than it was told, but ends.
func deaf(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
}

func exists(p runtime.Pod) bool { return len(p.Containers)+len(p.Sandboxes) > 0 }

// silent is a notifier that tells of nothing.
type silent struct{}

func (silent) Events(ctx context.Context, _ func(runtime.Event)) error {
	<-ctx.Done()
	return nil
}

// doubled shows all containers of pods twice whose Sync was cut. What is cut stays so in the world.
type doubled struct {
	mu  sync.Mutex // guards cut
	cut map[types.UID]bool
}

func (d *doubled) plant(f *looptest.Fixture) {
	synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
		result, err := r.Sync(ctx, pod, in)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cut[pod.UID] = d.cut[pod.UID] || len(in.Seen.Containers) == 0
		return result, err
	})(f)
	shown(true, func(p *runtime.Pod) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.cut[p.UID] && len(p.Sandboxes) > 0 {
			twin := p.Sandboxes[0]
			twin.ID += "-twin"
			p.Sandboxes = append(p.Sandboxes, twin)
		}
	})(f)
}

// named knows pods by their names: another of the same name takes the place of the first.
type named struct {
	mu sync.Mutex // guards is
	is map[string]*v1.Pod
}

func (n *named) sync(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
	n.mu.Lock()
	old := n.is[pod.Name]
	n.is[pod.Name] = pod
	n.mu.Unlock()
	if old != nil && old.UID != pod.UID {
		seen, err := r.Pod(ctx, old.UID)
		if err != nil {
			return runtime.SyncResult{}, err
		}
		if err := r.Stop(ctx, old, seen, runtime.Termination{}); err != nil {
			return runtime.SyncResult{}, err
		}
	}
	return r.Sync(ctx, pod, in)
}

// forgetful shows only pods that it was asked for itself.
func forgetful(r syncloop.Runtime) bent {
	var asked sync.Map
	return bent{
		sync: func(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
			asked.Store(pod.UID, true)
			return r.Sync(ctx, pod, in)
		},
		pods: func(ctx context.Context) ([]runtime.Pod, error) {
			all, err := r.Pods(ctx)
			return slices.DeleteFunc(all, func(p runtime.Pod) bool { _, is := asked.Load(p.UID); return !is }), err
		},
	}
}

// begins starts pods anew that it did not start itself.
func begins(r syncloop.Runtime) bent {
	var begun sync.Map
	return bent{sync: func(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
		if _, known := begun.LoadOrStore(pod.UID, true); !known && exists(in.Seen) {
			if err := r.Stop(ctx, pod, in.Seen, runtime.Termination{}); err != nil {
				return runtime.SyncResult{}, err
			}
			if err := r.Remove(ctx, pod.UID, runtime.Renew); err != nil {
				return runtime.SyncResult{}, err
			}
			return runtime.SyncResult{Acted: true}, nil
		}
		return r.Sync(ctx, pod, in)
	}}
}

// locked lets one call at a time at each pod, looks too.
func locked(r syncloop.Runtime) bent {
	var locks sync.Map
	lock := func(uid types.UID) func() {
		m, _ := locks.LoadOrStore(uid, make(chan struct{}, 1))
		c, _ := m.(chan struct{})
		c <- struct{}{}
		return func() { <-c }
	}
	return bent{
		pod: func(ctx context.Context, uid types.UID) (runtime.Pod, error) {
			defer lock(uid)()
			return r.Pod(ctx, uid)
		},
		stop: func(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
			defer lock(seen.UID)()
			return r.Stop(ctx, pod, seen, how)
		},
	}
}

func faults() map[string]fault {
	all := map[string]fault{}
	for _, some := range []map[string]fault{lookFaults(), syncFaults(), stopFaults(), agentFaults()} {
		maps.Copy(all, some)
	}
	return all
}
