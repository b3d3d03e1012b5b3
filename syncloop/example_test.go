package syncloop_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// one is a source that wants one pod for ever. A source of yours reads a file, a queue, an address.
type one struct{ pod *v1.Pod }

func (o one) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	set([]*v1.Pod{o.pod}, true)
	<-ctx.Done()
	return nil
}

// until is a sink that ends the program when the pod has ended.
type until struct{ stop func() }

func (u until) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error { return nil }
func (u until) Finished(_ context.Context, pod *v1.Pod) error {
	fmt.Println(pod.Name, "has ended")
	u.stop()
	return nil
}

// A source, a runtime and a sink are all a loop needs. Here the engine is one in memory, where the command ends at once.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	logs, _ := os.MkdirTemp("", "logs")
	defer os.RemoveAll(logs)
	var roster syncloop.Roster
	engine := runtimetest.New(runtime.Image{ID: "job:1", Tags: []string{"job:1"}})
	pods, err := podruntime.New(podruntime.Config{Engine: engine, LogRoot: logs, Changed: roster.Wake})
	if err != nil {
		fmt.Println(err)
		return
	}
	loop, err := syncloop.New(syncloop.Config{
		Sources: map[string]syncloop.PodSource{"mine": one{&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "1"},
			Spec: v1.PodSpec{
				RestartPolicy: v1.RestartPolicyNever,
				Containers:    []v1.Container{{Name: "work", Image: "job:1", Command: []string{"true"}}},
			},
		}}},
		Runtime: pods, Sink: until{stop}, Roster: &roster,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := loop.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: job has ended
}
