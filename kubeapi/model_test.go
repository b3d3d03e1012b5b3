package kubeapi

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var seed = flag.Uint64("seed", 0, "replay the random history of this seed; 0: many")

// histories runs f with many seeds, or with the one that is asked for.
func histories(t *testing.T, many int, f func(b *bench, r *rand.Rand)) {
	t.Helper()
	first := rand.Uint64N(1 << 40)
	if *seed != 0 {
		first, many = *seed, 1
	}
	for s := first; s < first+uint64(many) && !t.Failed(); s++ {
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			inBubble(t, func(b *bench) { f(b, rand.New(rand.NewPCG(s, 0))) })
		})
	}
}

// faults are ways in which a server treats requests.
func faults(r *rand.Rand) func(apifake.Call) *apifake.Answer {
	kind, all := r.IntN(8), r.IntN(2) == 0
	n := r.IntN(600)
	var calls atomic.Int64 // with all false every other one is treated well
	return func(c apifake.Call) *apifake.Answer {
		if !all && calls.Add(1)%2 == 0 {
			return nil
		}
		switch kind {
		case 0:
			return &apifake.Answer{Err: apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("no"))}
		case 1:
			return &apifake.Answer{Err: apierrors.NewTooManyRequests("", 1+n%4)}
		case 2:
			return &apifake.Answer{Err: apierrors.NewInternalError(errors.New("no leader"))}
		case 3:
			return &apifake.Answer{Err: apierrors.NewResourceExpired("too old")}
		case 4:
			return &apifake.Answer{Delay: time.Duration(n) * 50 * time.Millisecond}
		case 5:
			return &apifake.Answer{Err: apierrors.NewServiceUnavailable("")}
		}
		return &apifake.Answer{Lost: true, Bytes: n}
	}
}

// Whatever happens between server and node, each delivery is the set of pods as the server had it at some time, no delivery is
// older than the one before, and in the end it is what the server has.
func TestAnyHistoryOfPods(t *testing.T) {
	histories(t, 50, func(b *bench, r *rand.Rand) {
		b.node()
		states := [][]string{{}} // the naive model: all that ever was
		state := func() []string {
			return describe(slices.DeleteFunc(apifake.All[*v1.Pod](b.server), func(p *v1.Pod) bool { return p.Spec.NodeName != "n1" }))
		}
		at, shown := 0, []string{}
		var mu sync.Mutex
		s := &Source{Client: b.client}
		b.begin(b.client.Run)
		b.settle()
		check := func(pods []*v1.Pod, _ bool) {
			mu.Lock()
			defer mu.Unlock()
			shown = describe(pods)
			for at < len(states) && !slices.Equal(states[at], shown) {
				at++
			}
			if at == len(states) {
				b.Errorf("the server never had, or no longer has: %v; it had\n%v", shown, states)
				at = 0
			}
		}
		change := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
			states = append(states, state())
		}
		b.begin(func(ctx context.Context) error { return s.Run(ctx, check) })
		for range 40 {
			p := pod(fmt.Sprintf("p%d", r.IntN(4)))
			is, there := apifake.Get(b.server, p)
			switch r.IntN(12) {
			case 0, 1, 2:
				change(func() {
					if !there {
						p.Spec.NodeName = []string{"n1", "n1", "n2", ""}[r.IntN(4)]
						b.put(p)
						return
					}
					is.Labels = map[string]string{"n": fmt.Sprint(r.IntN(100))}
					if is.Spec.NodeName == "" {
						is.Spec.NodeName = "n1"
					}
					b.put(is)
				})
			case 3:
				change(func() { b.server.Delete(p) })
			case 4, 5:
				change(func() { b.server.Remove(p) })
			case 6:
				b.server.CutWatches()
			case 7:
				b.server.Compact()
			case 8:
				b.server.SetDown(r.IntN(2) == 0)
			case 9:
				b.server.Freeze(r.IntN(2) == 0)
			case 10:
				b.server.Answer(faults(r))
				b.server.CutWatches()
			case 11:
				b.server.Answer(nil)
			}
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.IntN(20000)) * time.Millisecond)
			}
		}
		b.settle()
		b.server.Answer(nil)
		b.server.Freeze(false)
		b.server.SetDown(false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if want := state(); !slices.Equal(shown, want) {
			b.Errorf("in the end %v, wanted %v", shown, want)
		}
	})
}

// Whatever others write and however requests fail: what they wrote stays, a pod that has ended stays so, and a status that
// was taken is there.
func TestAnyHistoryOfStatuses(t *testing.T) {
	histories(t, 100, func(b *bench, r *rand.Rand) {
		s := &Sink{Client: b.client}
		shown := b.put(pod("web"))
		theirs := map[v1.PodConditionType]v1.ConditionStatus{}
		var ended v1.PodPhase
		value := func() v1.ConditionStatus { return []v1.ConditionStatus{"True", "False", "Unknown"}[r.IntN(3)] }
		ours := running("False")
		ours.Phase = v1.PodPending
		for range 40 {
			switch r.IntN(9) {
			case 0: // others write a condition
				is, kind := b.now(shown), v1.PodConditionType(fmt.Sprintf("example.com/%d", r.IntN(3)))
				is.Status.Conditions = slices.DeleteFunc(is.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == kind })
				delete(theirs, kind)
				if v := value(); r.IntN(3) > 0 {
					is.Status.Conditions = append(is.Status.Conditions, condition(kind, v))
					theirs[kind] = v
				}
				b.put(is)
			case 1: // or end the pod
				if is := b.now(shown); ended == "" && r.IntN(6) == 0 {
					is.Status.Phase = v1.PodFailed
					b.put(is)
				}
			case 2:
				is := b.now(shown)
				is.Labels = map[string]string{"n": fmt.Sprint(r.IntN(100))}
				b.put(is)
			case 3, 4: // the source catches up
				shown = b.now(shown)
			case 5:
				b.server.Answer(faults(r))
			default:
				v := value()
				ours = running(v)
				ours.PodIP = fmt.Sprintf("10.0.0.%d", r.IntN(3))
				ours.PodIPs[0].IP = ours.PodIP
				ours.Phase = []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodSucceeded}[r.IntN(4)]
				if ours.Phase == v1.PodSucceeded {
					ours.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
				}
				ctx, cancel := context.WithTimeout(b.Context(), 20123*time.Millisecond)
				err := s.UpdateStatus(ctx, shown, ours)
				cancel()
				b.settle() // a server may still do what nobody waits for any more
				is := b.now(shown)
				switch {
				case errors.Is(err, runtime.ErrNotFound):
					b.Errorf("it is there: %v", err)
				case err == nil && (is.Status.PodIP != ours.PodIP || len(is.Status.PodIPs) != 1):
					b.Errorf("%v %v, wanted %s", is.Status.PodIP, is.Status.PodIPs, ours.PodIP)
				case err == nil && ended == "" && is.Status.Phase != ours.Phase:
					// The one thing that may be: others ended it.
					if is.Status.Phase != v1.PodFailed {
						b.Errorf("phase %s, wanted %s", is.Status.Phase, ours.Phase)
					}
				case err == nil && is.Status.Phase == v1.PodRunning && statusOf(is, v1.PodReady) != v:
					b.Errorf("Ready is %s, wanted %s", statusOf(is, v1.PodReady), v)
				}
				b.server.Answer(nil)
			}
			is := b.now(shown)
			if ended != "" && is.Status.Phase != ended {
				b.Fatalf("from %s to %s", ended, is.Status.Phase)
			}
			if is.Status.Phase == v1.PodFailed || is.Status.Phase == v1.PodSucceeded {
				ended = is.Status.Phase
			}
			for i := range 3 {
				kind := v1.PodConditionType(fmt.Sprintf("example.com/%d", i))
				if got := statusOf(is, kind); got != theirs[kind] {
					b.Fatalf("%s is %q, wanted %q", kind, got, theirs[kind])
				}
			}
		}
	})
}
