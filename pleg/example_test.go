package pleg_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// oneWeb is a source with one pod in it.
type oneWeb struct{ state runtime.State }

func (o *oneWeb) Pods(ctx context.Context) ([]runtime.Pod, error) {
	p, err := o.Pod(ctx, "1234")
	return []runtime.Pod{p}, err
}

func (o *oneWeb) Pod(_ context.Context, uid types.UID) (runtime.Pod, error) {
	ref := runtime.PodRef{Namespace: "shop", Name: "web", UID: uid}
	return runtime.Pod{PodRef: ref, Containers: []runtime.Container{{Pod: ref, ID: "abc", Name: "app", State: o.state, ExitCode: 3}}}, nil
}

func Example() {
	ctx := context.Background()
	web := &oneWeb{state: runtime.Running}
	g, err := pleg.New(pleg.Config{
		Source: web, // a runtime/podruntime over an engine, for instance
		Tell:   func(e pleg.Event) { fmt.Println(e.Pod.Name, e.Container, e.Kind) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(g.Healthy())
	_ = g.Relist(ctx) // Run does this each second
	web.state = runtime.Exited
	_ = g.Relist(ctx)

	pod, err := g.Pod(ctx, "1234", time.Time{})
	fmt.Println(pod.Containers[0].ExitCode, err)
	fmt.Println(g.Healthy())
	// Output:
	// the pods of this node have not been listed yet
	// web abc started
	// web abc died
	// 3 <nil>
	// <nil>
}

func ExampleDiff() {
	ref := runtime.PodRef{Name: "web", UID: "1234"}
	was := runtime.Pod{PodRef: ref, Containers: []runtime.Container{{ID: "abc", State: runtime.Running}}}
	is := runtime.Pod{PodRef: ref, Containers: []runtime.Container{{ID: "def", State: runtime.Running}}}
	for _, e := range pleg.Diff([]runtime.Pod{was}, []runtime.Pod{is}) {
		fmt.Println(e.Container, e.Kind)
	}
	// Output:
	// abc died
	// abc removed
	// def started
}
