package syncloop_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

var (
	seed      = flag.Uint64("seed", 0, "play this one history; 0: several")
	histories = flag.Int("histories", 30, "how many histories to play")
)

// TestHistories plays random histories of a node: pods come, change and go, containers and sandboxes die, the runtime
// fails, hangs and loses answers, the agent is killed and started again. While it goes on never two instances of one name
// run; once the world is quiet, exactly what is wanted runs and nothing else is left.
func TestHistories(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for i := range *histories {
			seeds = append(seeds, uint64(i+1))
		}
	}
	for _, s := range seeds {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { history(t, rand.New(rand.NewPCG(s, 1))) })
		})
	}
}

func history(t *testing.T, r *rand.Rand) {
	t.Helper()
	n := newNode(t)
	n.start()
	defer func() { n.stop() }()
	uid := 0
	names := []string{"a", "b", "c", "d"}
	counts := map[string]int{}
	for range 60 {
		name := names[r.IntN(len(names))]
		switch r.IntN(12) {
		case 0, 1, 2:
			uid++
			n.do(fmt.Sprintf("add %s app=%s side=sleep_9999 uid=%s-%d grace=%d", name, []string{"sleep_9999", "sleep_30;_exit_1", "exit_1"}[r.IntN(3)], name, uid, r.IntN(8)))
		case 3:
			n.do("remove " + name)
		case 4:
			if p := n.pods[name]; p != nil {
				_ = n.engine.Exit(n.engine.Newest(p.UID, "side"), int32(r.IntN(2))) // it may not run: no matter
			}
		case 5:
			if p := n.pods[name]; p != nil {
				if s, _ := n.engine.ListSandboxes(context.Background(), runtime.Filter{Pod: p.UID, OnlyAlive: true}); len(s) > 0 {
					n.engine.EndSandbox(s[0].ID)
				}
			}
		case 6, 7:
			n.engine.Inject("", runtimetest.Times(1+r.IntN(4), fault(r)))
		case 8:
			n.do("restart")
		case 9:
			if r.IntN(3) == 0 {
				n.do("reboot")
			}
		default:
			time.Sleep(time.Duration(r.IntN(40_000)) * time.Millisecond)
		}
		if r.IntN(2) == 0 {
			synctest.Wait()
		}
		n.noTwins(counts)
	}
	n.engine.Inject("", nil)
	time.Sleep(15 * time.Minute)
	synctest.Wait()
	n.noTwins(counts)
	n.asWanted()
}

func fault(r *rand.Rand) runtimetest.Fault {
	switch r.IntN(4) {
	case 0:
		return runtimetest.Fail(runtime.ErrUnavailable)
	case 1:
		return runtimetest.Lost(fmt.Errorf("the answer was lost: %w", context.DeadlineExceeded))
	case 2:
		return runtimetest.Delay(time.Duration(r.IntN(5000)) * time.Millisecond)
	default:
		return func(ctx context.Context, _ runtimetest.Call) error {
			select { // hangs, but not for ever: a real engine's calls have deadlines
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Minute):
				return context.DeadlineExceeded
			}
		}
	}
}

// truth is what the engine has, whatever is injected into calls.
func (n *node) truth() ([]runtime.Sandbox, []runtime.Container) {
	s, c := n.engine.Truth()
	return s, c
}

// noTwins checks what must hold at every moment.
func (n *node) noTwins(counts map[string]int) {
	n.t.Helper()
	containers := n.noUIDTwins(counts)
	byName := map[string]types.UID{}
	for _, c := range containers {
		if c.State != runtime.Running {
			continue
		}
		if other, ok := byName[c.Pod.Name]; ok && other != c.Pod.UID {
			n.t.Fatalf("pods %s and %s of one name run together; what was done:\n%s", other, c.Pod.UID, strings.Join(n.take(), "\n"))
		}
		byName[c.Pod.Name] = c.Pod.UID
	}
}

// noUIDTwins checks what must hold of each pod at every moment.
func (n *node) noUIDTwins(counts map[string]int) []runtime.Container {
	n.t.Helper()
	_, containers := n.truth()
	running := map[string]int{}
	for _, c := range containers {
		key := string(c.Pod.UID) + "/" + c.Name
		if c.State == runtime.Running {
			if running[key]++; running[key] > 1 {
				n.t.Fatalf("two instances of %s run", key)
			}
		}
		if c.State == runtime.Running && c.Restarts < counts[key] {
			n.t.Fatalf("the restart count of %s went from %d down to %d", key, counts[key], c.Restarts)
		}
		if c.State == runtime.Running {
			counts[key] = c.Restarts
		}
	}
	return containers
}

// asWanted checks what must hold once the world is quiet.
func (n *node) asWanted() {
	n.t.Helper()
	sandboxes, containers := n.truth()
	wanted := map[types.UID]bool{}
	for _, p := range n.pods {
		wanted[p.UID] = true
		ready := slices.DeleteFunc(slices.Clone(sandboxes), func(s runtime.Sandbox) bool { return s.UID != p.UID || !s.Ready })
		if len(ready) != 1 {
			n.t.Errorf("pod %s has %d ready sandboxes", p.UID, len(ready))
		}
		side := slices.ContainsFunc(containers, func(c runtime.Container) bool {
			return c.Pod.UID == p.UID && c.Name == "side" && c.State == runtime.Running
		})
		if !side {
			n.t.Errorf("pod %s: side does not run", p.UID)
		}
		if st := n.newest(p); !strings.Contains(st, string(v1.PodRunning)) {
			n.t.Errorf("pod %s is told as %q", p.UID, st)
		}
	}
	for _, s := range sandboxes {
		if !wanted[s.UID] {
			n.t.Errorf("left over: sandbox of %s", s.UID)
		}
	}
	for _, c := range containers {
		if !wanted[c.Pod.UID] {
			n.t.Errorf("left over: container %s of %s", c.Name, c.Pod.UID)
		}
	}
}

func (n *node) newest(p *v1.Pod) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status[p.Name]
}

// TestHistoriesOfServerPods plays random histories of pods of an API server: they come, are deleted with one grace and
// then another, are taken away by force, get successors of the same name, are written over by others, are over by
// themselves; the server and the runtime are away for a while, agents are killed. No container of a pod that is over starts
// again, and once the world is quiet the server knows how everything is.
func TestHistoriesOfServerPods(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for i := range *histories {
			seeds = append(seeds, uint64(i+1))
		}
	}
	for _, s := range seeds {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { serverHistory(t, rand.New(rand.NewPCG(s, 2))) })
		})
	}
}

func serverHistory(t *testing.T, r *rand.Rand) {
	t.Helper()
	n := newNode(t)
	n.start()
	defer func() { n.stop() }()
	uid := 0
	names := []string{"a", "b", "c", "d"}
	counts := map[string]int{}
	for range 80 {
		name := names[r.IntN(len(names))]
		switch r.IntN(16) {
		case 0, 1, 2:
			uid++
			n.do(fmt.Sprintf("add %s app=%s source=api uid=%s-%d grace=%d policy=%s", name,
				[]string{"sleep_9999", "sleep_30;_exit_1", "exit_1", "sleep_20"}[r.IntN(4)], name, uid, r.IntN(8),
				[]string{"Always", "OnFailure", "Never"}[r.IntN(3)]) + []string{"", "", fmt.Sprint(" deadline=", 1+r.IntN(60))}[r.IntN(3)])
		case 3, 4:
			n.do(fmt.Sprint("delete ", name, " grace=", r.IntN(20)))
		case 5:
			n.do("remove " + name)
		case 6:
			n.api.change(name, func(p *v1.Pod) {
				if p.Status.Phase == v1.PodPending || p.Status.Phase == v1.PodRunning {
					p.Status.Phase = []v1.PodPhase{v1.PodFailed, v1.PodPending, v1.PodRunning, v1.PodSucceeded}[r.IntN(4)]
				}
			})
		case 7:
			n.do("condition " + name + " other True")
		case 8:
			n.do("server " + []string{"away", "back"}[r.IntN(2)])
		case 9, 10:
			n.engine.Inject("", runtimetest.Times(1+r.IntN(4), fault(r)))
		case 11:
			n.do("restart")
		case 12:
			if r.IntN(3) == 0 {
				n.do("reboot")
			}
		default:
			time.Sleep(time.Duration(r.IntN(40_000)) * time.Millisecond)
		}
		if r.IntN(2) == 0 {
			synctest.Wait()
		}
		n.noUIDTwins(counts)
	}
	n.engine.Inject("", nil)
	n.do("server back")
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	n.noUIDTwins(counts)
	n.asServed()
}

// asServed checks what must hold of a server's pods once the world is quiet.
func (n *node) asServed() {
	n.t.Helper()
	_, containers := n.truth()
	objects := map[types.UID]*v1.Pod{}
	all := n.api.all()
	n.mu.Lock()
	told := maps.Clone(n.over)
	n.mu.Unlock()
	for _, p := range all {
		objects[p.UID] = p
		running := slices.ContainsFunc(containers, func(c runtime.Container) bool { return c.Pod.UID == p.UID && c.State == runtime.Running })
		over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
		command := p.Spec.Containers[0].Command[2]
		switch {
		case p.DeletionTimestamp != nil:
			n.t.Errorf("pod %s is still there, %s", p.UID, n.api.show(p.Name))
		case over && running:
			n.t.Errorf("pod %s is over, and a container of it runs", p.UID)
		case !over && p.Spec.RestartPolicy == v1.RestartPolicyNever && command != "sleep 9999":
			n.t.Errorf("pod %s never restarts and must be over by now: %s", p.UID, n.api.show(p.Name))
		case !over && command == "sleep 9999" && !running:
			n.t.Errorf("pod %s does not run: %s", p.UID, n.api.show(p.Name))
		case !over && p.Spec.ActiveDeadlineSeconds != nil:
			n.t.Errorf("pod %s is past its deadline: %s", p.UID, n.api.show(p.Name))
		}
		for _, c := range p.Status.ContainerStatuses {
			if told := c.State.Running != nil; told != running && command == "sleep 9999" {
				n.t.Errorf("container of pod %s: told as running %v, and it is %v", p.UID, told, running)
			}
		}
		if told[p.UID] && !over {
			n.t.Errorf("pod %s was over and is %s", p.UID, p.Status.Phase)
		}
	}
	for _, c := range containers {
		if objects[c.Pod.UID] == nil {
			n.t.Errorf("left over: container %s of %s", c.Name, c.Pod.UID)
		}
	}
}
