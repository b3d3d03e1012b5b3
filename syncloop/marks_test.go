package syncloop_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// instant is a Runtime whose pods run as soon as they are wanted. It keeps the pods it is given and counts looks.
type instant struct {
	mu    sync.Mutex // guards the rest
	given map[types.UID]*v1.Pod
	looks int
}

func (q *instant) Pods(context.Context) ([]runtime.Pod, error) { return nil, nil }

func (q *instant) Pod(_ context.Context, uid types.UID) (runtime.Pod, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks++
	p := runtime.Pod{PodRef: runtime.PodRef{UID: uid}, At: time.Now()}
	if q.given[uid] != nil {
		p.Sandboxes = []runtime.Sandbox{{ID: "s", Ready: true, NetworkKnown: true, IPs: []string{"10.0.0.7"}}}
		p.Containers = []runtime.Container{{ID: "c", Name: "app", SandboxID: "s", State: runtime.Running, Started: time.Now()}}
	}
	return p, nil
}

func (q *instant) Sync(_ context.Context, pod *v1.Pod, _ runtime.SyncInput) (runtime.SyncResult, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.given[pod.UID] == nil
	if q.given == nil {
		q.given = map[types.UID]*v1.Pod{}
	}
	q.given[pod.UID] = pod
	return runtime.SyncResult{Acted: first}, nil
}

func (q *instant) Stop(_ context.Context, pod *v1.Pod, _ runtime.Pod, _ runtime.Termination) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.given, pod.UID)
	return nil
}

func (q *instant) Remove(context.Context, types.UID, runtime.Removal) error { return nil }

func (q *instant) pod(uid types.UID) *v1.Pod {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.given[uid]
}

func (q *instant) count() int {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.looks
}

// withServer runs a loop over an instant runtime with pods of a server.
func withServer(t *testing.T, script func(n *node, q *instant)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, q := newNode(t), new(instant)
		loop, err := syncloop.New(syncloop.Config{Sources: map[string]syncloop.PodSource{"api": n.api}, Runtime: q, Sink: n, Resync: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- loop.Run(ctx) }()
		script(n, q)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPodsOfAnAPIServerAreMarkedAsSuch(t *testing.T) {
	withServer(t, func(n *node, q *instant) {
		p := n.pod("web", []string{"app=x", "source=api"})
		n.api.put(p)
		got := q.pod(p.UID)
		seen := got.Annotations[podspec.SeenAnnotation]
		if at, err := time.Parse(time.RFC3339Nano, seen); err != nil || !at.Equal(time.Now()) || len(seen) != len("2006-01-02T15:04:05.000000000Z") {
			t.Errorf("seen %q, %v", seen, err)
		}
		if podspec.Static(got) || got.Annotations[podspec.SourceAnnotation] != "api" {
			t.Errorf("marks %v", got.Annotations)
		}

		// What the object says of its origin counts for nothing, and what it says else is kept.
		time.Sleep(time.Minute)
		n.api.change("web", func(p *v1.Pod) {
			p.Annotations = map[string]string{podspec.SourceAnnotation: "file", podspec.SeenAnnotation: "never", "note": "x"}
		})
		want := map[string]string{podspec.SourceAnnotation: "api", podspec.SeenAnnotation: seen, "note": "x"}
		if got := q.pod(p.UID); !maps.Equal(got.Annotations, want) {
			t.Errorf("marks %v, want %v", got.Annotations, want)
		}
		if n.api.get("web").Annotations[podspec.SourceAnnotation] != "file" {
			t.Error("the source's object was changed")
		}
	})
}

// TestEchoesCostNothing holds back the work that every status of ours would make when it comes back from the server.
func TestEchoesCostNothing(t *testing.T) {
	withServer(t, func(n *node, q *instant) {
		p := n.pod("web", []string{"app=x", "source=api"})
		n.api.put(p)
		before := q.count()
		if n.api.written() == 0 || before > 12 { // each event and each write may bring one
			t.Errorf("%d writes, %d looks", n.api.written(), before)
		}
		writes := n.api.written()
		for range 10 { // the source sends all it has whenever one of them changes
			n.api.ring()
			synctest.Wait()
		}
		if got := q.count() - before; got != 0 || n.api.written() != writes {
			t.Errorf("%d looks and %d writes for nothing", got, n.api.written()-writes)
		}
		n.do("condition web other True")
		if q.count() == before {
			t.Error("nobody looked when another one wrote a condition")
		}
	})
}
