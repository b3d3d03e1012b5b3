package imagegc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is an engine with pods, and who is wanted on it.
type node struct {
	t      *testing.T
	engine *runtimetest.Engine

	mu      sync.Mutex // guards the rest
	gone    map[types.UID]bool
	removed []string // what was asked to go, in order
}

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{t: t, engine: runtimetest.New(runtime.Image{ID: "img"}), gone: map[types.UID]bool{}}
}

func (n *node) RemoveInstance(ctx context.Context, id string) error {
	c, err := n.engine.Container(ctx, id)
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if c.State == runtime.Running {
		n.t.Errorf("%s was to be removed while it runs", c.Name)
	}
	if err := n.engine.RemoveContainer(ctx, id); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removed = append(n.removed, fmt.Sprintf("%s/%s#%d", c.Pod.UID, c.Name, c.Restarts))
	return nil
}

func (n *node) removable(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gone[uid]
}

func (n *node) unwant(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone[uid] = true
}

// took is what was removed since it was asked last.
func (n *node) took() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.removed = nil }()
	return strings.Join(n.removed, " ")
}

func (n *node) dead(change func(*imagegc.DeadConfig)) *imagegc.Dead {
	n.t.Helper()
	cfg := imagegc.DeadConfig{Containers: n.engine, Sandboxes: n.engine, Instances: n, Removable: n.removable}
	if change != nil {
		change(&cfg)
	}
	d, err := imagegc.NewDead(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return d
}

func (n *node) sandbox(uid string, attempt uint32) string {
	n.t.Helper()
	id, err := n.engine.RunSandbox(n.t.Context(), &runtime.SandboxConfig{Pod: runtime.PodRef{UID: types.UID(uid)}, Attempt: attempt})
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

// start starts a container that runs, or exits at once.
func (n *node) start(sandbox, uid, name string, attempt uint32, runs bool) string {
	n.t.Helper()
	time.Sleep(time.Millisecond) // no two are made at one time
	id, err := n.engine.CreateContainer(n.t.Context(), sandbox, &runtime.ContainerConfig{
		Pod: runtime.PodRef{UID: types.UID(uid)}, Name: name, Attempt: attempt, Image: "img", Command: []string{"sleep", "100000"},
	})
	if err == nil {
		err = n.engine.StartContainer(n.t.Context(), id)
	}
	if err == nil && !runs {
		err = n.engine.Exit(id, 1)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

func TestTrimComesSoonAndCollectEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		for _, uid := range []string{"p", "q"} {
			box := n.sandbox(uid, 0)
			for i := range uint32(3) {
				n.start(box, uid, "a", i, false)
			}
			n.start(box, uid, "a", 3, true)
			defer func() { _ = n.engine.RemoveSandbox(context.Background(), box) }()
		}
		d := n.dead(nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		d.Trim("p") // before Run: not lost
		d.Trim("p")
		go func() { done <- d.Run(ctx) }()
		synctest.Wait()
		if got := n.took(); got != "p/a#0 p/a#1" {
			t.Errorf("trimmed %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := n.took(); got != "q/a#0 q/a#1" {
			t.Errorf("collected %q", got)
		}
		n.unwant("p")
		d.Trim("p")
		synctest.Wait()
		if got := n.took(); got != "p/a#2" {
			t.Errorf("trimmed of an unwanted pod %q", got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWhoHasSeenThePodHasNothingAskedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		d := n.dead(nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		died := func(states ...runtime.State) int {
			seen := runtime.Pod{PodRef: runtime.PodRef{UID: "p"}}
			for _, s := range states {
				seen.Containers = append(seen.Containers, runtime.Container{Name: "a", State: s})
			}
			seen.Containers = append(seen.Containers, runtime.Container{Name: "b", State: runtime.Exited})
			before := n.engine.Calls("ListContainers")
			d.Died(seen)
			synctest.Wait()
			return n.engine.Calls("ListContainers") - before
		}
		if got := died(runtime.Running, runtime.Exited); got != 0 {
			t.Errorf("one dead instance of each name stays, and the engine was asked %d times", got)
		}
		if got := died(runtime.Exited, runtime.Exited); got != 1 {
			t.Errorf("one is too many, and the engine was asked %d times", got)
		}
		n.unwant("p")
		if got := died(runtime.Exited); got != 1 {
			t.Errorf("nobody wants the pod, and the engine was asked %d times", got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSandboxesGoAfterTheirContainersAndAreStoppedFirst(t *testing.T) {
	n := newNode(t)
	for i := range uint32(3) {
		n.start(n.sandbox("p", i), "p", "a", i, false)
		n.engine.Reboot()
	}
	d := n.dead(nil)
	if err := d.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 1}, n.left()); diff != "" {
		t.Errorf("containers and sandboxes left (-want +got)\n%s", diff)
	}
	if stops, removals := n.engine.Calls("StopSandbox"), n.engine.Calls("RemoveSandbox"); stops != 2 || removals != 2 {
		t.Errorf("%d stopped, %d removed", stops, removals)
	}
	n.unwant("p")
	if err := d.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{0, 0}, n.left()); diff != "" {
		t.Errorf("containers and sandboxes left of an unwanted pod (-want +got)\n%s", diff)
	}
}

// left counts containers and sandboxes.
func (n *node) left() []int {
	containers, _ := n.engine.ListContainers(n.t.Context(), runtime.Filter{})
	sandboxes, _ := n.engine.ListSandboxes(n.t.Context(), runtime.Filter{})
	return []int{len(containers), len(sandboxes)}
}

func TestASandboxThatCannotBeStoppedStays(t *testing.T) {
	n := newNode(t)
	n.sandbox("p", 0)
	n.engine.Reboot()
	n.unwant("p")
	n.engine.Inject("StopSandbox", runtimetest.Fail(errors.New("the network plugin is away")))
	err := n.dead(nil).Collect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the network plugin is away") {
		t.Errorf("error %v", err)
	}
	if n.engine.Calls("RemoveSandbox") != 0 {
		t.Error("it was removed with its network")
	}
}

func TestReclaimTakesWhatEndedPodsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		for _, uid := range []string{"job", "web"} {
			n.start(n.sandbox(uid, 0), uid, "a", 0, false)
			n.engine.Reboot()
		}
		d := n.dead(func(c *imagegc.DeadConfig) { c.Ended = func(uid types.UID) bool { return uid == "job" } })
		if err := d.Collect(t.Context()); err != nil || n.took() != "" {
			t.Error("collected too much", err)
		}
		plan, err := d.PlanReclaim(t.Context())
		if err != nil || len(plan) != 2 || plan[0].Name != "/(job) a#0" || plan[0].Why != "its pod has ended" || n.took() != "" {
			t.Errorf("planned %+v, %v", plan, err)
		}
		if err := d.Reclaim(t.Context()); err != nil {
			t.Error(err)
		}
		if got := n.took(); got != "job/a#0" {
			t.Errorf("reclaimed %q", got)
		}
		if diff := cmp.Diff([]int{1, 1}, n.left()); diff != "" {
			t.Errorf("left (-want +got)\n%s", diff)
		}
	})
}

func TestWhatMayRunUnseenIsStoppedWithItsGraceFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		box := n.sandbox("p", 0)
		id := n.start(box, "p", "a", 0, true)
		for i := range uint32(2) {
			n.start(box, "p", "a", i+1, false)
		}
		_ = n.engine.Edit(id, func(c *runtime.Container) {
			c.State = runtime.Unknown
			c.Annotations = map[string]string{runtime.AnnotationTerminationGracePeriod: "30"}
		})
		if err := n.dead(nil).Collect(t.Context()); err != nil {
			t.Error(err)
		}
		if got := n.took(); got != "p/a#0 p/a#1" {
			t.Errorf("removed %q", got)
		}
		if n.engine.Calls("StopContainer") != 1 {
			t.Error("it was not stopped")
		}
	})
}

func TestAPodThatIsWantedAgainKeepsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		box := n.sandbox("p", 0)
		n.start(box, "p", "a", 0, false)
		n.start(box, "p", "b", 0, false)
		asked := 0
		d := n.dead(func(c *imagegc.DeadConfig) {
			c.Removable = func(types.UID) bool { asked++; return asked <= 3 } // both names, then the first removal
		})
		if err := d.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		if got := n.took(); got != "p/a#0" {
			t.Errorf("removed %q", got)
		}
	})
}

func TestOneThatCannotBeRemovedHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		box := n.sandbox("p", 0)
		for i := range uint32(4) {
			n.start(box, "p", "a", i, false)
		}
		n.engine.Inject("RemoveContainer", runtimetest.Times(1, runtimetest.Fail(errors.New("device or resource busy"))))
		d := n.dead(nil)
		if err := d.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "busy") {
			t.Errorf("error %v", err)
		}
		if got := n.took(); got != "p/a#1 p/a#2" {
			t.Errorf("removed %q", got)
		}
		if err := d.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		if got := n.took(); got != "p/a#0" {
			t.Errorf("next round removed %q", got)
		}
	})
}

func TestNewDeadSaysWhatIsMissing(t *testing.T) {
	if _, err := imagegc.NewDead(imagegc.DeadConfig{}); err == nil {
		t.Error("no error")
	}
	n := newNode(t)
	_, err := imagegc.NewDead(imagegc.DeadConfig{Containers: n.engine, Sandboxes: n.engine, Instances: n, Removable: n.removable, MinAge: -1})
	if err == nil {
		t.Error("no error for a negative age")
	}
}

// TestRandomHistories lets pods live, crash, lose their sandbox and go, while Run is at work and the engine fails now and
// then. Nothing that is needed may vanish at any time, and once all is quiet nothing that is not may be left.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			n := newNode(t)
			d := n.dead(func(c *imagegc.DeadConfig) { c.Interval = 7 * time.Second })
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- d.Run(ctx) }()
			h := history{n: n, r: r, boxes: map[string]string{}, attempts: map[string]uint32{}, last: map[string]string{}}
			var calls atomic.Uint64
			flaky := runtimetest.Only(func(runtimetest.Call) bool { return calls.Add(1)%3 == 0 }, runtimetest.Fail(errors.New("flaky")))
			for range 80 {
				h.step(d, flaky)
				synctest.Wait()
				h.check(seed)
			}
			n.engine.Inject("RemoveContainer", nil)
			time.Sleep(15 * time.Second)
			synctest.Wait()
			h.checkQuiet(seed)
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			n.engine.Reboot()
		})
	}
}

// history is what a naive observer remembers.
type history struct {
	n        *node
	r        *rand.Rand
	boxes    map[string]string // ready sandbox by pod
	attempts map[string]uint32
	last     map[string]string // newest container by pod and name
}

func (h *history) step(d *imagegc.Dead, flaky runtimetest.Fault) {
	uid, name := string('p'+rune(h.r.IntN(3))), string('a'+rune(h.r.IntN(2)))
	key := uid + "/" + name
	switch h.r.IntN(8) {
	case 0:
		d.Trim(types.UID(uid))
	case 1:
		time.Sleep(time.Duration(h.r.IntN(5)) * time.Second)
	case 2:
		h.n.engine.Inject("RemoveContainer", [...]runtimetest.Fault{nil, flaky}[h.r.IntN(2)])
	case 3: // the sandbox dies
		if box := h.boxes[uid]; box != "" {
			h.n.engine.EndSandbox(box)
			delete(h.boxes, uid)
		}
	case 4: // the pod is deleted, and comes back under the same UID
		if box := h.boxes[uid]; box != "" {
			h.n.engine.EndSandbox(box)
		}
		h.n.unwant(types.UID(uid))
		delete(h.boxes, uid)
		delete(h.last, uid+"/a")
		delete(h.last, uid+"/b")
		time.Sleep(time.Duration(h.r.IntN(10)) * time.Second)
		h.n.mu.Lock()
		delete(h.n.gone, types.UID(uid))
		h.n.mu.Unlock()
	default: // one ends, another is started
		if h.boxes[uid] == "" {
			h.boxes[uid] = h.n.sandbox(uid, h.attempts[uid])
			h.attempts[uid]++
		}
		_ = h.n.engine.Exit(h.last[key], 1)
		h.last[key] = h.n.start(h.boxes[uid], uid, name, h.attempts[key], h.r.IntN(2) == 0)
		h.attempts[key]++
		d.Trim(types.UID(uid))
	}
}

// check: the newest of each name is there.
func (h *history) check(seed uint64) {
	for key, id := range h.last {
		if _, err := h.n.engine.Container(context.Background(), id); err != nil {
			h.n.t.Fatalf("seed %d: the newest %s is gone: %v", seed, key, err)
		}
	}
}

func (h *history) checkQuiet(seed uint64) {
	list, _ := h.n.engine.ListContainers(context.Background(), runtime.Filter{})
	dead := map[string]int{}
	for _, c := range list {
		if c.State != runtime.Running {
			dead[string(c.Pod.UID)+"/"+c.Name]++
		}
	}
	for key, count := range dead {
		if count > 1 {
			h.n.t.Errorf("seed %d: %d dead instances of %s are left", seed, count, key)
		}
	}
	boxes, _ := h.n.engine.ListSandboxes(context.Background(), runtime.Filter{})
	for _, s := range boxes {
		used := slices.ContainsFunc(list, func(c runtime.Container) bool { return c.SandboxID == s.ID })
		newer := slices.ContainsFunc(boxes, func(o runtime.Sandbox) bool { return o.UID == s.UID && o.Attempt > s.Attempt })
		if !s.Ready && !used && newer {
			h.n.t.Errorf("seed %d: an old empty sandbox of %s is left", seed, s.UID)
		}
	}
}

func TestPlanOfTheDeadRemovesNothingAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		for _, uid := range []string{"stays", "gone"} {
			box := n.sandbox(uid, 0)
			for i := range uint32(2) {
				n.start(box, uid, "a", i, false)
			}
			if uid == "gone" {
				n.engine.EndSandbox(box)
			}
			defer func() { _ = n.engine.RemoveSandbox(context.Background(), box) }()
		}
		n.unwant("gone")
		steps, err := n.dead(nil).Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range steps {
			got = append(got, s.Kind+" "+s.Name+": "+s.Why)
		}
		want := []string{
			"container /(stays) a#0: enough newer ones of its name are kept",
			"container /(gone) a#0: its pod is no more", "container /(gone) a#1: its pod is no more", "sandbox /(gone): its pod is no more",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if took := n.took(); took != "" {
			t.Errorf("removed %s", took)
		}
	})
}
