package staticpod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
)

// cluster is an API server with the mirror pods of one node, and that node.
type cluster struct {
	latency time.Duration // of a call
	lag     time.Duration // until Show tells of a change
	fails   error         // what calls answer
	hides   bool          // a pod that is made is not kept
	mirrors *Mirrors

	showing   sync.Mutex // held while Show is called
	lastShown int        // the change it told of

	mu      sync.Mutex // guards the rest
	changes int
	wg      sync.WaitGroup
	pods    map[string]*v1.Pod
	calls   []string
	made    int
	node    *v1.Node
	statics []*v1.Pod
	known   bool // all sources have told what they want
	changed []types.UID
	logged  *node // takes the log
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		pods: map[string]*v1.Pod{}, logged: &node{t: t}, known: true,
		node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}},
	}
	m, err := NewMirrors(MirrorConfig{
		Client:    c,
		Node:      func() *v1.Node { c.mu.Lock(); defer c.mu.Unlock(); return c.node },
		Pods:      func() []*v1.Pod { c.mu.Lock(); defer c.mu.Unlock(); return c.statics },
		Removable: func(types.UID) bool { c.mu.Lock(); defer c.mu.Unlock(); return c.known },
		Changed:   func(uid types.UID) { c.mu.Lock(); defer c.mu.Unlock(); c.changed = append(c.changed, uid) },
		Observe:   observe.To{Log: slog.New(c.logged)},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.mirrors = m
	return c
}

// run runs the mirrors until the test ends.
func (c *cluster) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.mirrors.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		c.wg.Wait()
	})
	c.show()
}

// show tells what there is, lag later.
func (c *cluster) show() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods []*v1.Pod
	for _, p := range c.pods {
		pods = append(pods, p)
	}
	c.changes++
	change := c.changes
	c.wg.Go(func() {
		time.Sleep(c.lag)
		c.showing.Lock()
		defer c.showing.Unlock()
		if change > c.lastShown { // never back to an older state
			c.lastShown = change
			c.mirrors.Show(pods)
		}
	})
}

func (c *cluster) call(ctx context.Context, what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, what)
	fails := c.fails
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.latency):
	}
	return fails
}

var podResource = schema.GroupResource{Resource: "pods"}

func (c *cluster) CreateMirror(ctx context.Context, pod *v1.Pod) error {
	if err := c.call(ctx, "create "+pod.Name+" "+pod.Annotations[podspec.MirrorAnnotation]); err != nil {
		return err
	}
	c.mu.Lock()
	if c.pods[pod.Name] != nil {
		c.mu.Unlock()
		return apierrors.NewAlreadyExists(podResource, pod.Name)
	}
	if c.hides {
		c.mu.Unlock()
		return nil
	}
	c.made++
	p := pod.DeepCopy()
	p.UID = types.UID(fmt.Sprint("m", c.made))
	c.pods[pod.Name] = p
	c.mu.Unlock()
	c.show()
	return nil
}

func (c *cluster) DeleteMirror(ctx context.Context, _, name string, uid types.UID) error {
	if err := c.call(ctx, "delete "+name+" "+string(uid)); err != nil {
		return err
	}
	c.mu.Lock()
	p := c.pods[name]
	switch {
	case p == nil:
		c.mu.Unlock()
		return apierrors.NewNotFound(podResource, name)
	case p.UID != uid:
		c.mu.Unlock()
		return apierrors.NewConflict(podResource, name, errors.New("another uid"))
	}
	delete(c.pods, name)
	c.mu.Unlock()
	c.show()
	return nil
}

// do changes something.
func (c *cluster) do(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
}

// after lets time pass, and a moment more, and takes the calls made meanwhile.
func (c *cluster) after(d time.Duration) []string {
	time.Sleep(d + time.Millisecond)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func (c *cluster) wants(t *testing.T, d time.Duration, calls ...string) {
	t.Helper()
	if got := c.after(d); !slices.Equal(got, calls) {
		t.Errorf("calls %q, want %q", got, calls)
	}
}

func TestAStaticPodIsShownToTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.statics = []*v1.Pod{static("etcd", "v1")}
		c.run(t)
		c.wants(t, time.Second, "create etcd v1")
		m := c.mirrors.MirrorOf("v1")
		if m == nil || m.UID != "m1" {
			t.Fatalf("mirror %v", m)
		}
		if uid, ok := c.mirrors.StaticOf("m1"); !ok || uid != "v1" {
			t.Errorf("static of the mirror: %q %v", uid, ok)
		}
		if m := c.mirrors.MirrorOf("v2"); m != nil {
			t.Errorf("of a pod nobody knows: %v", m)
		}
		if uid, ok := c.mirrors.StaticOf("v1"); ok {
			t.Errorf("of a pod that is no mirror: %v", uid)
		}
		c.wants(t, time.Hour)
		if !slices.Equal(c.changed, []types.UID{"v1"}) {
			t.Errorf("changed %v", c.changed)
		}
	})
}

func TestNothingIsDoneBeforeTheServerShowedWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.statics = []*v1.Pod{static("etcd", "v1")}
		c.pods["etcd"] = mirrorPod("etcd", "v1", "m7")
		c.lag = time.Minute
		c.run(t)
		c.wants(t, 59*time.Second)
		c.wants(t, time.Hour)
	})
}

func TestAMirrorWaitsForItsNode(t *testing.T) {
	for name, missing := range map[string]*v1.Node{
		"no node":          nil,
		"no uid":           {ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		"a node that goes": {ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "old", DeletionTimestamp: &metav1.Time{}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				there := c.node
				c.node = missing
				c.statics = []*v1.Pod{static("etcd", "v1")}
				c.run(t)
				c.wants(t, time.Minute)
				c.do(func() { c.node = there })
				c.wants(t, nodeWait, "create etcd v1")
			})
		})
	}
}

func TestAnotherVersionGetsAnotherMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.statics = []*v1.Pod{static("etcd", "v1"), static("proxy", "p1")}
		c.run(t)
		c.after(time.Second)
		old := string(c.mirrors.MirrorOf("v1").UID)
		c.do(func() { c.statics = []*v1.Pod{static("etcd", "v2"), static("proxy", "p1")} })
		c.mirrors.Wake()
		c.wants(t, time.Second, "delete etcd "+old, "create etcd v2")
		c.do(func() { c.statics = []*v1.Pod{static("proxy", "p1")} })
		if got := c.after(defaultRelook); len(got) != 1 || !strings.HasPrefix(got[0], "delete etcd") {
			t.Errorf("after the file went: %v", got)
		}
		c.wants(t, time.Hour)
	})
}

func TestAnOrphanStaysUntilAllSourcesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.known = false
		c.pods["etcd"] = mirrorPod("etcd", "v1", "m7")
		bound := mirrorPod("web", "", "u9")
		delete(bound.Annotations, podspec.MirrorAnnotation)
		c.pods["web"] = bound // by mistake: it is no mirror
		c.run(t)
		c.wants(t, time.Hour)
		c.do(func() { c.known = true })
		c.wants(t, defaultRelook, "delete etcd m7")
		c.wants(t, time.Hour)
	})
}

// A mirror someone deletes comes back: one delete when it is still there, one create, and a new status for it.
func TestCase_c098_mirrorDeletedByAUser(t *testing.T) {
	for name, finished := range map[string]bool{"gone at once": true, "still shown, on its way": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.latency, c.lag = 500*time.Millisecond, 4*time.Second
				c.statics = []*v1.Pod{static("etcd", "v1")}
				c.pods["etcd"] = mirrorPod("etcd", "v1", "m0")
				c.run(t)
				c.wants(t, time.Minute)
				want := []string{"create etcd v1"}
				c.do(func() {
					c.pods["etcd"] = ending(c.pods["etcd"])
					if finished {
						delete(c.pods, "etcd")
					} else {
						want = append([]string{"delete etcd m0"}, want...)
					}
				})
				c.show()
				for range 20 { // the server shows the same again and again meanwhile
					time.Sleep(100 * time.Millisecond)
					c.mirrors.Wake()
				}
				c.wants(t, time.Hour, want...)
				if m := c.mirrors.MirrorOf("v1"); m == nil || m.UID != "m1" {
					t.Errorf("mirror %v", m)
				}
				if !slices.Equal(c.changed, []types.UID{"v1", "v1"}) {
					t.Errorf("changed %v; the new mirror needs the status, restart counts and all", c.changed)
				}
			})
		})
	}
}

// While the old version takes its grace its mirror stays and is the one its status goes to; then the new one gets its own.
func TestCase_c094_mirrorWhileTheOldVersionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.statics = []*v1.Pod{static("etcd", "v1")}
		c.run(t)
		c.after(time.Minute)
		c.do(func() { c.statics = []*v1.Pod{ending(static("etcd", "v1")), static("etcd", "v2")} })
		c.wants(t, 30*time.Second)
		if m := c.mirrors.MirrorOf("v1"); m == nil {
			t.Error("the old version has no mirror while it ends")
		}
		if m := c.mirrors.MirrorOf("v2"); m != nil {
			t.Error("the new version has the mirror of the old one")
		}
		c.do(func() { c.statics = []*v1.Pod{static("etcd", "v2")} })
		if c.mirrors.MirrorOf("v2") != nil { // whoever has a status for it asks, and that is enough
			t.Error("there cannot be one yet")
		}
		c.wants(t, time.Second, "delete etcd m1", "create etcd v2")
		if m := c.mirrors.MirrorOf("v2"); m == nil || m.UID != "m2" {
			t.Errorf("mirror %v", m)
		}
	})
}

// Without an API server static pods come and go; their mirrors follow when it is back.
func TestCase_c101_mirrorsFollowWhenTheServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.statics = []*v1.Pod{static("etcd", "v1"), static("proxy", "p1")}
		c.run(t)
		c.after(time.Minute)
		c.do(func() {
			c.fails = errors.New("connection refused")
			c.statics = []*v1.Pod{static("etcd", "v2"), static("dns", "d1")} // v2 takes its place, proxy went
		})
		calls := c.after(time.Hour)
		if n := len(calls); n > 3*90 {
			t.Errorf("%d calls in an hour without a server", n)
		}
		warned := c.logged.Lines("WARN")
		if len(warned) != 3 {
			t.Errorf("logged %v", warned)
		}
		c.do(func() { c.fails = nil })
		c.after(2 * time.Minute)
		have := map[string]string{}
		for name, p := range c.pods {
			have[name] = p.Annotations[podspec.MirrorAnnotation]
		}
		if fmt.Sprint(have) != "map[dns:d1 etcd:v2]" {
			t.Errorf("mirrors %v", have)
		}
		c.wants(t, time.Hour)
	})
}

// A file that went while there was no server, and came back with another image: one mirror of what runs now.
func TestCase_c092_mirrorOfAFileThatCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.statics = []*v1.Pod{static("etcd", "v1")}
		c.run(t)
		c.after(time.Minute)
		c.do(func() { c.fails, c.statics = errors.New("no route to host"), nil })
		c.after(5 * time.Minute)
		c.do(func() { c.fails, c.statics = nil, []*v1.Pod{static("etcd", "v2")} })
		c.mirrors.Wake()
		c.wants(t, time.Second, "delete etcd m1", "create etcd v2")
	})
}

// The new mirror is told the status of the pod as it is; its restart count lives with the containers.
func TestCase_c104_mirrorComesBackWithItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := static("etcd", "v1")
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", RestartCount: 12}}
		c.statics = []*v1.Pod{p}
		c.run(t)
		c.after(time.Minute)
		c.do(func() { delete(c.pods, "etcd"); c.changed = nil })
		c.show()
		c.wants(t, time.Second, "create etcd v1")
		if !slices.Equal(c.changed, []types.UID{"v1"}) {
			t.Errorf("told that %v need their status written", c.changed)
		}
		if p.Status.ContainerStatuses[0].RestartCount != 12 {
			t.Error("the pod was touched")
		}
	})
}

// What can never be made, as in a namespace that is missing, is tried once a minute, and hinders no other.
func TestAMirrorThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		web := static("web", "w1")
		c.pods["web"] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "somebody else's"}}
		c.statics = []*v1.Pod{web, static("etcd", "v1")}
		c.run(t)
		if calls := c.after(time.Hour); len(calls) < 45 || len(calls) > 70 {
			t.Errorf("%d calls in an hour", len(calls))
		}
		if c.mirrors.MirrorOf("v1") == nil || c.pods["web"].UID != "somebody else's" {
			t.Errorf("pods %v", c.pods)
		}
		if l := c.logged.Lines("WARN"); len(l) != 1 || !strings.Contains(l[0], "pod=web") || !strings.Contains(l[0], "already exists") {
			t.Errorf("logged %v", l)
		}
	})
}

// The same with a client that takes what is there for what it was to make.
func TestAMirrorThatIsNeverShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.statics = []*v1.Pod{static("web", "w1")}
		c.hides = true
		c.run(t)
		if calls := c.after(time.Hour); len(calls) < 45 || len(calls) > 70 {
			t.Errorf("%d calls in an hour", len(calls))
		}
		if l := c.logged.Lines("WARN"); len(l) != 1 || !strings.Contains(l[0], "another pod") {
			t.Errorf("logged %v", l)
		}
	})
}

func TestSomebodyWhoDeletesAMirrorEachTimeMakesNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.statics = []*v1.Pod{static("etcd", "v1")}
		c.run(t)
		for range 3600 {
			time.Sleep(time.Second)
			synctest.Wait()
			c.do(func() { delete(c.pods, "etcd") })
			c.show()
		}
		if n := len(c.after(0)); n > 130 {
			t.Errorf("%d calls in an hour", n)
		}
	})
}

// A call that hangs ends with Run; one that takes half a minute hinders no other pod.
func TestASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.latency = 30 * time.Second
		for i := range 8 {
			c.statics = append(c.statics, static(fmt.Sprint("pod", i), fmt.Sprint("v", i)))
		}
		c.run(t)
		if n := len(c.after(61 * time.Second)); n != 8 || len(c.pods) != 8 {
			t.Errorf("%d calls, %d pods", n, len(c.pods))
		}
		c.do(func() {
			c.latency = 24 * time.Hour
			c.statics = c.statics[1:]
		})
		c.after(defaultRelook + time.Second)
	})
}

// Whatever happens in whatever order, in the end the mirrors are those of what is wanted, and then all is quiet.
func TestMirrorsConverge(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a history to be repeated
				c := newCluster(t)
				c.latency, c.lag = time.Duration(r.IntN(900))*time.Millisecond, time.Duration(r.IntN(3000))*time.Millisecond
				c.run(t)
				wanted := map[string]*v1.Pod{}
				for i := range 60 {
					name := []string{"a", "b", "c"}[r.IntN(3)]
					c.do(func() {
						switch r.IntN(6) {
						case 0:
							delete(wanted, name)
						case 1, 2:
							wanted[name] = static(name, fmt.Sprint("v", i))
						case 3:
							delete(c.pods, name)
						case 4:
							c.fails = nil
							if r.IntN(2) == 0 {
								c.fails = errors.New("down")
							}
						case 5:
							if p := c.pods[name]; p != nil {
								c.pods[name] = ending(p)
							}
						}
						c.statics = nil
						for _, p := range wanted {
							c.statics = append(c.statics, p)
						}
					})
					c.show()
					time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
				}
				c.do(func() { c.fails = nil })
				c.show()
				c.after(3 * time.Minute)
				if len(c.pods) != len(wanted) {
					t.Errorf("mirrors %v, want %v", c.pods, wanted)
				}
				for name, p := range wanted {
					if m := c.mirrors.MirrorOf(p.UID); m == nil || c.pods[name] == nil || m.UID != c.pods[name].UID || m.DeletionTimestamp != nil {
						t.Errorf("%s: mirror %v of %v", name, m, c.pods[name])
					}
				}
				c.wants(t, time.Hour)
			})
		})
	}
}

func TestMirrorsNeedAClient(t *testing.T) {
	if _, err := NewMirrors(MirrorConfig{}); err == nil || !strings.Contains(err.Error(), "required") {
		t.Errorf("error %v", err)
	}
}
