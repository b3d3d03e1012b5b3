package kubeapi

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/witness"
)

func TestMain(m *testing.M) {
	apifake.Bubbles()
	goleak.VerifyTestMain(m)
}

// bench is a server, a client of it, and what the client logs. All of it runs in a bubble.
type bench struct {
	*testing.T

	server *apifake.Server
	client *Client
	log    *witness.Notes
}

// inBubble has f run with the bubble's clock. What f starts ends with it.
func inBubble(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: apifake.New(), log: &witness.Notes{}}
		var err error
		if b.client, err = New(Config{REST: b.server.Config(), Node: "n1", Observe: b.log.Observe()}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.server.Close)
		t.Cleanup(b.client.CloseIdle)
		f(b)
	})
}

// begin runs parts until the test ends or stop is called, which waits for them.
func (b *bench) begin(parts ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range parts {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				b.Errorf("Run: %v", err)
			}
		})
	}
	stop = func() {
		cancel()
		wg.Wait()
	}
	b.Cleanup(stop)
	return stop
}

// settle lets everything that can be done now be done.
func (b *bench) settle() {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

// calls are the requests since the last time, without watches.
func (b *bench) calls() []string {
	return slices.DeleteFunc(b.server.Calls(), func(c string) bool { return strings.HasPrefix(c, "watch ") })
}

func (b *bench) wantCalls(want ...string) {
	b.Helper()
	if got := b.calls(); !slices.Equal(got, want) {
		b.Errorf("requests:\n  %s\nwanted:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// node makes the Node object.
func (b *bench) node() *v1.Node {
	return b.server.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}).(*v1.Node)
}

// pod is one on this node.
func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "app", Image: "i"}}},
		Status:     v1.PodStatus{Phase: v1.PodPending},
	}
}

func (b *bench) put(p *v1.Pod) *v1.Pod { return b.server.Put(p).(*v1.Pod) }

// deliveries is what a source has said.
type deliveries struct {
	mu      sync.Mutex
	n       int
	last    []*v1.Pod
	mirrors []*v1.Pod
}

func (d *deliveries) set(pods []*v1.Pod, complete bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if complete {
		d.n++
		d.last = pods
	}
}

func (d *deliveries) setMirrors(pods []*v1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mirrors = pods
}

// count is how many deliveries there were, pods what the last one was: name, uid and version of each, sorted.
func (d *deliveries) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

func (d *deliveries) pods() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return describe(d.last)
}

func (d *deliveries) newest() []*v1.Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

func (d *deliveries) newestMirrors() []*v1.Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mirrors
}

func describe(pods []*v1.Pod) []string {
	out := make([]string, 0, len(pods))
	for _, p := range pods {
		out = append(out, p.Namespace+"/"+p.Name+" "+string(p.UID)+" "+p.ResourceVersion)
	}
	slices.Sort(out)
	return out
}

// source begins a source.
func (b *bench) source() (d *deliveries, stop func()) {
	d = &deliveries{}
	s := &Source{Client: b.client, Mirrors: d.setMirrors}
	return d, b.begin(b.client.Run, func(ctx context.Context) error { return s.Run(ctx, d.set) })
}
