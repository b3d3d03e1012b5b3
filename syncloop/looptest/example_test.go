package looptest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/looptest"
)

// lamps is a backend with a runtime over it, as small as the rules allow: a container is a lamp that is lit.
type lamps struct {
	mu   sync.Mutex // guards pods
	pods map[types.UID]*runtime.Pod
}

// Pods are copies of all, with the moment they were taken.
func (l *lamps) Pods(ctx context.Context) ([]runtime.Pod, error) {
	at := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []runtime.Pod
	for _, p := range l.pods {
		all = append(all, copied(p, at))
	}
	return all, ctx.Err()
}

// Pod is one of them, or one of which there is nothing but the uid.
func (l *lamps) Pod(ctx context.Context, uid types.UID) (runtime.Pod, error) {
	at := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pods[uid]; p != nil {
		return copied(p, at), ctx.Err()
	}
	return runtime.Pod{PodRef: runtime.PodRef{UID: uid}, At: at}, ctx.Err()
}

func copied(p *runtime.Pod, at time.Time) runtime.Pod {
	out := *p
	out.At, out.Containers, out.Sandboxes = at, slices.Clone(p.Containers), slices.Clone(p.Sandboxes)
	return out
}

// Sync lights what is dark. It acted only if there was something to light.
func (l *lamps) Sync(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (result runtime.SyncResult, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return result, ctx.Err()
	}
	p := l.pods[pod.UID]
	if p == nil {
		ref := runtime.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		p = &runtime.Pod{PodRef: ref, Sandboxes: []runtime.Sandbox{{PodRef: ref, ID: string(pod.UID), Ready: true, Created: time.Now()}}}
		l.pods[pod.UID] = p
	}
	for i := range pod.Spec.Containers {
		spec := &pod.Spec.Containers[i]
		next, old := 0, p.Newest(spec.Name)
		if old != nil {
			if old.State == runtime.Running && in.ProbeResults[old.ID].Liveness == runtime.Failing {
				old.State, old.Finished, old.ExitCode = runtime.Exited, time.Now(), 137
			}
			if old.State == runtime.Running || pod.Spec.RestartPolicy == v1.RestartPolicyNever {
				continue
			}
			next = old.Restarts + 1
		}
		p.Containers = slices.Insert(p.Containers, 0, runtime.Container{
			Pod: p.PodRef, ID: fmt.Sprintf("%s/%s/%d", pod.UID, spec.Name, next), Name: spec.Name, SandboxID: p.Sandboxes[0].ID,
			Restarts: next, Image: spec.Image, State: runtime.Running, Created: time.Now(), Started: time.Now(),
		})
		result.Acted = true
	}
	return result, nil
}

// Stop puts out what is lit. Lamps need no grace.
func (l *lamps) Stop(ctx context.Context, _ *v1.Pod, seen runtime.Pod, _ runtime.Termination) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pods[seen.UID]; p != nil && ctx.Err() == nil {
		p.Sandboxes[0].Ready = false
		for i := range p.Containers {
			if c := &p.Containers[i]; c.State == runtime.Running {
				c.State, c.Finished = runtime.Exited, time.Now()
			}
		}
	}
	return ctx.Err()
}

// Remove forgets a pod, once nobody needs to read any more how its lamps went out.
func (l *lamps) Remove(ctx context.Context, uid types.UID, what runtime.Removal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if what != runtime.Release {
		delete(l.pods, uid)
	}
	return ctx.Err()
}

// testLamps is a test as you would write it for a runtime of yours. Two runtimes over one world are one here: what
// outlives a process is what you read again.
func testLamps(t *testing.T) {
	t.Helper()
	looptest.Run(t, func(*testing.T) looptest.Fixture {
		l := &lamps{pods: map[types.UID]*runtime.Pod{}}
		return looptest.Fixture{
			Runtime:   l,
			Next:      func() syncloop.Runtime { return l },
			Container: v1.Container{Image: "lamp"},
		}
	})
}

// The smallest runtime that keeps the rules, its test, and two of the rules by hand: a pod comes to run, and a pod at rest is
// left alone.
func Example() {
	l, pod := &lamps{pods: map[types.UID]*runtime.Pod{}}, &v1.Pod{}
	pod.UID, pod.Spec.Containers = "1", []v1.Container{{Name: "hall", Image: "lamp"}}
	for range 2 {
		seen, _ := l.Pod(context.Background(), pod.UID)
		result, err := l.Sync(context.Background(), pod, runtime.SyncInput{Seen: seen})
		fmt.Println(len(seen.Containers), result.Acted, err)
	}
	_ = testLamps // in a test: func TestLamps(t *testing.T)
	// Output:
	// 0 true <nil>
	// 1 false <nil>
}
