package looptest_test

import (
	"context"
	"errors"
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

func lookFaults() map[string]fault {
	return map[string]fault{
		"a pod that does not exist is an error": {
			"a look at a pod that does not exist is empty", "answered the error not found",
			bend(func(r syncloop.Runtime) bent {
				return bent{pod: func(ctx context.Context, uid types.UID) (runtime.Pod, error) {
					p, err := r.Pod(ctx, uid)
					if err == nil && !exists(p) {
						err = runtime.ErrNotFound
					}
					return p, err
				}}
			}),
		},
		"a pod that does not exist has no uid": {
			"a look at a pod that does not exist is empty", "runtime.Pod{PodRef: runtime.PodRef{UID: uid}",
			shown(false, func(p *runtime.Pod) {
				if !exists(*p) {
					p.UID = ""
				}
			}),
		},
		"looks have no time": {
			"a look says when it was taken", "leaves At zero",
			shown(false, func(p *runtime.Pod) { p.At = time.Time{} }),
		},
		"looks are from memory": {
			"a look says when it was taken", "look anew",
			shown(false, func(p *runtime.Pod) { p.At = p.At.Add(-time.Second) }),
		},
		"times of looks are by the wall clock": {
			"a look says when it was taken", "no monotonic reading",
			shown(false, func(p *runtime.Pod) { p.At = time.Unix(0, time.Now().UnixNano()) }),
		},
		"names of pods are lost": {
			"a look shows what was asked for", "is seen as",
			shown(true, func(p *runtime.Pod) { p.Name = "" }),
		},
		"there is no sandbox": {
			"a look shows what was asked for", "make one up",
			shown(true, func(p *runtime.Pod) { p.Sandboxes = nil }),
		},
		"IDs are names": {
			"a look shows what was asked for", "no ID, or that of another",
			shown(true, each(func(c *runtime.Container) { c.ID = "app" })),
		},
		"images are lost": {
			"a look shows what was asked for", "has Image, which is not its",
			shown(true, each(func(c *runtime.Container) { c.Image = "" })),
		},
		"containers lie in no sandbox": {
			"a look shows what was asked for", "has SandboxID",
			shown(true, each(func(c *runtime.Container) { c.SandboxID = "" })),
		},
		"lists have other IDs": {
			"a look and the list show the same", "the same IDs and states",
			listed(each(func(c *runtime.Container) { c.ID = c.ID[:3] + c.Name })),
		},
		"lists are in another order": {
			"a look and the list show the same", "in the same order",
			listed(func(p *runtime.Pod) { slices.Reverse(p.Containers) }),
		},
		"lists have no names": {
			"a look and the list show the same", "its uid, namespace and name",
			listed(func(p *runtime.Pod) { p.Namespace = "" }),
		},
		"lists leave one out": {
			"the list has every pod once", "0 times",
			bend(func(r syncloop.Runtime) bent {
				return bent{pods: func(ctx context.Context) ([]runtime.Pod, error) {
					all, err := r.Pods(ctx)
					return all[:min(len(all), 2)], err
				}}
			}),
		},
		"lists show one twice": {
			"the list has every pod once", "2 times",
			bend(func(r syncloop.Runtime) bent {
				return bent{pods: func(ctx context.Context) ([]runtime.Pod, error) {
					all, err := r.Pods(ctx)
					return append(all, all...), err
				}}
			}),
		},
		"a look that was cut shows nothing": {
			"a look that is cut is an error or whole", "Pod with a context that ended",
			bend(func(r syncloop.Runtime) bent {
				return bent{pod: func(ctx context.Context, uid types.UID) (runtime.Pod, error) {
					p, err := r.Pod(ctx, uid)
					if ctx.Err() != nil {
						err = nil
					}
					return p, err
				}}
			}),
		},
		"a list that was cut shows nothing": {
			"a look that is cut is an error or whole", "Pods with a context that ended",
			bend(func(r syncloop.Runtime) bent {
				return bent{pods: func(ctx context.Context) ([]runtime.Pod, error) {
					all, err := r.Pods(ctx)
					if ctx.Err() != nil {
						err = nil
					}
					return all, err
				}}
			}),
		},
		"looks wait for a stop": {"a look does not wait for a stop", "hold no lock", bend(locked)},
	}
}

func syncFaults() map[string]fault {
	var silence, coming sync.Map
	return map[string]fault{
		"nothing is done": {
			"a pod comes to run", "there is no container a",
			synced(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.SyncInput) (runtime.SyncResult, error) {
				return runtime.SyncResult{}, nil
			}),
		},
		"more is to be done, and nobody told": {
			"a pod comes to run", "Nobody calls Sync again before",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if _, second := silence.LoadOrStore(pod.UID, true); !second {
					return runtime.SyncResult{}, nil
				}
				return r.Sync(ctx, pod, in)
			}),
		},
		"it cannot be done": {
			"a pod comes to run", "mend what the error says",
			synced(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.SyncInput) (runtime.SyncResult, error) {
				return runtime.SyncResult{}, errors.New("out of machines")
			}),
		},
		"what comes up is not listed": {
			"a pod comes to run", "no list showed that",
			func(f *looptest.Fixture) {
				start := time.Now()
				bend(func(r syncloop.Runtime) bent {
					return bent{
						sync: func(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
							_, err := r.Sync(ctx, pod, in)
							coming.Store(pod.UID, true)
							return runtime.SyncResult{}, err
						},
						pods: func(context.Context) ([]runtime.Pod, error) { return nil, nil },
						pod: func(ctx context.Context, uid types.UID) (runtime.Pod, error) {
							p, err := r.Pod(ctx, uid)
							if time.Since(start) < time.Second {
								p.Containers, p.Sandboxes = nil, nil
							}
							return p, err
						},
					}
				})(f)
			},
		},
		"each step says that it acted": {
			"a pod at rest is left alone", "set SyncResult.Acted only when",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				result, err := r.Sync(ctx, pod, in)
				result.Acted = true
				return result, err
			}),
		},
		"each step is to be taken again at once": {
			"a pod at rest is left alone", "leave RetryAt zero",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				at := time.Now()
				result, err := r.Sync(ctx, pod, in)
				result.RetryAt = at.Add(-time.Millisecond)
				return result, err
			}),
		},
		"a pod that exists already is an error": {
			"a pod at rest is left alone", "is no error",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if exists(in.Seen) {
					return runtime.SyncResult{}, runtime.ErrInUse
				}
				return r.Sync(ctx, pod, in)
			}),
		},
		"each step begins anew": {
			"a pod at rest is left alone", "set SyncResult.Acted only when",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if in.Seen.ContainersRunning() {
					_ = r.Stop(ctx, pod, in.Seen, runtime.Termination{})
					_ = r.Remove(ctx, pod.UID, runtime.Purge)
				}
				in.Seen = runtime.Pod{PodRef: runtime.PodRef{UID: pod.UID}, At: time.Now()}
				result, err := r.Sync(ctx, pod, in)
				return result, err
			}),
		},
		"notes are written into the pod": {
			"a pod that is handed in is not changed", "take a DeepCopy",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				pod.Annotations = map[string]string{"machine": "7"}
				return r.Sync(ctx, pod, in)
			}),
		},
		"steps do not heed their context": {
			"a sync that is cut is gone on with", "Sync had not returned",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				own, cancel := deaf(ctx)
				defer cancel()
				<-own.Done()
				return r.Sync(ctx, pod, in)
			}),
		},
		"what was cut is made again": {
			"a sync that is cut is gone on with", "find what the one before it has made", (&doubled{cut: map[types.UID]bool{}}).plant,
		},
		"what ended stays so": {
			"what ended is started again as its restart policy says", "still the instance",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if exists(in.Seen) && !in.Seen.ContainersRunning() {
					return runtime.SyncResult{}, nil
				}
				return r.Sync(ctx, pod, in)
			}),
		},
		"restarts are not counted": {
			"what ended is started again as its restart policy says", "let Restarts be how many",
			shown(true, each(func(c *runtime.Container) { c.Restarts = 0 })),
		},
		"all instances of a container have one ID": {
			"what ended is started again as its restart policy says", "another instance under the same ID",
			shown(true, each(func(c *runtime.Container) { c.ID = string(c.Pod.UID) + c.Name })),
		},
		"the oldest instance comes first": {
			"what ended is started again as its restart policy says", "show the newest instance first",
			shown(true, func(p *runtime.Pod) { slices.Reverse(p.Containers) }),
		},
		"all that ends is started again": {
			"what ended for good stays ended", "start nothing again",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				other := pod.DeepCopy()
				other.Spec.RestartPolicy = v1.RestartPolicyAlways
				return r.Sync(ctx, other, in)
			}),
		},
		"every failure is exit code 1": {
			"what ended for good stays ended", "its code is 1",
			shown(true, each(func(c *runtime.Container) { c.ExitCode = min(c.ExitCode, 1) })),
		},
		"nobody knows when it ended": {
			"what ended for good stays ended", "finished at 0001-01-01",
			shown(true, each(func(c *runtime.Container) { c.Finished = time.Time{} })),
		},
		"liveness probes are not heeded": {
			"what its liveness probe gives up is started again", "whose liveness probe fails",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				in.ProbeResults = nil
				return r.Sync(ctx, pod, in)
			}),
		},
		"sizes never change, and nobody is told": {
			"new sizes come to rest", "Applied shows",
			shown(true, func(p *runtime.Pod) {
				p.Applied = map[string]runtime.Sizes{"a": {CPURequest: 100, CPULimit: 200, MemoryRequest: 64 << 20, MemoryLimit: 128 << 20}}
			}),
		},
		"for new sizes a pod is made anew": {
			"new sizes come to rest", "keep their IDs",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if _, done := coming.LoadOrStore(fmt.Sprint(pod.UID, pod.Generation), true); !done && exists(in.Seen) {
					_ = r.Stop(ctx, pod, in.Seen, runtime.Termination{})
					return runtime.SyncResult{Acted: true}, r.Remove(ctx, pod.UID, runtime.Purge)
				}
				return r.Sync(ctx, pod, in)
			}),
		},
		"what fails is tried without end": {
			"what cannot be started is told and tried again later", "steps in a row say that they acted",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				result, err := r.Sync(ctx, pod, in)
				result.Acted = result.Acted || len(in.Seen.Waiting) > 0
				return result, err
			}),
		},
		"what fails is not told": {
			"what cannot be started is told and tried again later", "has no reason for waiting",
			shown(true, func(p *runtime.Pod) { p.Waiting = nil }),
		},
		"what fails is not tried again": {
			"what cannot be started is told and tried again later", "set RetryAt, or answer an error",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				result, err := r.Sync(ctx, pod, in)
				result.RetryAt = time.Time{}
				return result, err
			}),
		},
		"pods are known by their names": {
			"pods of one name are told apart by uid", "know pods by their uid", synced((&named{is: map[string]*v1.Pod{}}).sync),
		},
		"one ends, all end": {
			"pods are worked on side by side", "was not touched and is another",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				all, err := r.Pods(ctx)
				for _, p := range all {
					err = errors.Join(err, r.Stop(ctx, nil, p, how))
				}
				return err
			}),
		},
	}
}

func stopFaults() map[string]fault {
	return map[string]fault{
		"stop does nothing": {
			"a stopped pod runs no more", "answer nil only when nothing of the pod runs",
			stopped(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.Pod, runtime.Termination) error { return nil }),
		},
		"stop never ends": {
			"a stopped pod runs no more", "answered after",
			stopped(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.Pod, runtime.Termination) error {
				return errors.New("no such region")
			}),
		},
		"a stop in progress is not listed": {
			"a stopped pod runs no more", "when Stop answers runtime.ErrInProgress",
			stopped(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.Pod, runtime.Termination) error {
				return runtime.ErrInProgress
			}),
		},
		"a stopped pod comes back": {
			"a stopped pod runs no more", "runs again",
			func(f *looptest.Fixture) {
				var gone sync.Map
				bend(func(r syncloop.Runtime) bent {
					return bent{
						stop: func(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
							gone.Store(seen.UID, pod)
							return r.Stop(ctx, pod, seen, how)
						},
						pods: func(ctx context.Context) ([]runtime.Pod, error) {
							gone.Range(func(uid, pod any) bool {
								id, _ := uid.(types.UID)
								spec, _ := pod.(*v1.Pod)
								if seen, err := r.Pod(ctx, id); err == nil {
									_, _ = r.Sync(ctx, spec, runtime.SyncInput{Seen: seen})
								}
								return true
							})
							return r.Pods(ctx)
						},
					}
				})(f)
			},
		},
		"a second stop is an error": {
			"a stop may be repeated, of what is gone too", "that had been purged answered the error",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				if !exists(seen) {
					return runtime.ErrNotFound
				}
				return r.Stop(ctx, pod, seen, how)
			}),
		},
		"stop needs the spec": {
			"a stop without the spec ends the pod", "no spec",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				if pod == nil {
					return errors.New("no spec")
				}
				return r.Stop(ctx, pod, seen, how)
			}),
		},
		"stop gives no grace": {
			"a stop gives the grace and no more", "was ended after",
			stopped(func(ctx context.Context, r syncloop.Runtime, _ *v1.Pod, seen runtime.Pod, _ runtime.Termination) error {
				return r.Remove(ctx, seen.UID, runtime.Purge)
			}),
		},
		"a shorter grace is not heard": {
			"a stop gives the grace and no more", "which Termination.Grace says",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				if *pod.Spec.TerminationGracePeriodSeconds == 3600 {
					how.Grace = 0
				}
				return r.Stop(ctx, pod, seen, how)
			}),
		},
		"stop does not heed its context": {
			"a stop that is cut is gone on with, and made shorter", "Stop had not returned",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				ctx, cancel := deaf(ctx)
				defer cancel()
				return r.Stop(ctx, pod, seen, how)
			}),
		},
		"a stop that is cut kills": {
			"a stop that is cut is gone on with, and made shorter", "was killed when the context of Stop ended",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				err := r.Stop(ctx, pod, seen, how)
				if ctx.Err() != nil {
					err = r.Remove(context.WithoutCancel(ctx), seen.UID, runtime.Purge)
				}
				return err
			}),
		},
		"the first grace stays": {
			"a stop that is cut is gone on with, and made shorter", "let a later Stop with a shorter Grace count",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, _ runtime.Termination) error {
				return r.Stop(ctx, pod, seen, runtime.Termination{})
			}),
		},
		"release removes": {
			"release leaves what ended to be read", "keep what ended",
			removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, _ runtime.Removal) error {
				return r.Remove(ctx, uid, runtime.Purge)
			}),
		},
		"renew removes nothing": {
			"renew lets a pod begin anew", "show nothing of the pod",
			removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, what runtime.Removal) error {
				if what == runtime.Renew {
					return nil
				}
				return r.Remove(ctx, uid, what)
			}),
		},
		"a renewed pod is never started": {
			"renew lets a pod begin anew", "there is no container a",
			func(f *looptest.Fixture) {
				var over sync.Map
				bend(func(r syncloop.Runtime) bent {
					return bent{
						remove: func(ctx context.Context, uid types.UID, what runtime.Removal) error {
							over.Store(uid, true)
							return r.Remove(ctx, uid, what)
						},
						sync: func(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
							if _, is := over.Load(pod.UID); is {
								return runtime.SyncResult{}, nil
							}
							return r.Sync(ctx, pod, in)
						},
					}
				})(f)
			},
		},
		"purge removes nothing": {
			"purge leaves nothing", "show nothing of the pod",
			removed(func(context.Context, syncloop.Runtime, types.UID, runtime.Removal) error { return nil }),
		},
		"a removal does not heed its context": {
			"a removal may be repeated, of what is gone too", "Remove had not returned",
			removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, what runtime.Removal) error {
				if ctx.Err() != nil {
					own, cancel := deaf(ctx)
					defer cancel()
					<-own.Done()
				}
				return r.Remove(ctx, uid, what)
			}),
		},
		"a removal that was cut is taken for done": {
			"a removal may be repeated, of what is gone too", "show nothing of the pod",
			func(f *looptest.Fixture) {
				var done sync.Map
				removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, what runtime.Removal) error {
					if _, known := done.LoadOrStore(uid, true); known {
						return nil
					}
					return r.Remove(ctx, uid, what)
				})(f)
			},
		},
		"a second removal is an error": {
			"a removal may be repeated, of what is gone too", "answered the error not found",
			removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, what runtime.Removal) error {
				if seen, err := r.Pod(ctx, uid); err != nil || !exists(seen) {
					return errors.Join(err, runtime.ErrNotFound)
				}
				return r.Remove(ctx, uid, what)
			}),
		},
	}
}

func agentFaults() map[string]fault {
	stopsKnown := func(r syncloop.Runtime) bent {
		return bent{stop: func(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
			if pod == nil {
				return nil
			}
			return r.Stop(ctx, pod, seen, how)
		}}
	}
	return map[string]fault{
		"what the last process made is unknown to the next": {"the next agent finds what the last one left", "in the list", bend(forgetful)},
		"what the last process made is begun anew":          {"the next agent finds what the last one left", "keep their IDs", bendNext(begins)},
		"what the last process began is made again": {
			"the next agent goes on where the last one was cut", "find what the one before it has made", (&doubled{cut: map[types.UID]bool{}}).plant,
		},
		"what nobody knows goes on": {"the next agent ends what nobody knows", "answer nil only when nothing of the pod runs", bendNext(stopsKnown)},
		"lists are from memory": {
			"what happens is heard by listing", "did not tell",
			func(f *looptest.Fixture) {
				var first sync.Map
				listed(func(p *runtime.Pod) {
					if was, known := first.Load(p.UID); known {
						*p, _ = was.(runtime.Pod)
					} else if p.ContainersRunning() {
						first.Store(p.UID, own(*p))
					}
				})(f)
			},
		},
		"the notifier is silent": {
			"what happens is told by the notifier", "the notifier told of none",
			func(f *looptest.Fixture) { f.Notifier = silent{} },
		},
		"strangers go on": {"a loop takes a pod through its life", "a pod that no source knows is ended and removed", bend(stopsKnown)},
		"the loop is kept busy": {
			"a loop takes a pod through its life", "the runtime says at each step",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				result, err := r.Sync(ctx, pod, in)
				result.Acted = true
				return result, err
			}),
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
