package agent_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/staticpod"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/agent"
)

// document is a source that wants the same for ever. Yours reads a file, a queue, an address.
type document string

func (d document) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	pods, _, err := staticpod.DecodeList([]byte(d))
	if err != nil {
		return err
	}
	set(pods, true)
	<-ctx.Done()
	return nil
}

// until is a sink that ends the program with the pod.
type until struct{ stop func() }

func (until) UpdateStatus(context.Context, *v1.Pod, v1.PodStatus) error { return nil }

func (u until) Finished(_ context.Context, pod *v1.Pod) error {
	fmt.Println(pod.Name, "has ended")
	u.stop()
	return nil
}

// A source, a sink and an engine are an agent. The engine here is one in memory, where the command ends at once.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	root, _ := os.MkdirTemp("", "agent")
	defer os.RemoveAll(root)
	engine := runtimetest.New(runtime.Image{ID: "job:1", Tags: []string{"job:1"}})
	a, err := agent.New(agent.Config{
		Sources: map[string]syncloop.PodSource{"mine": document(`{"items": [{
			"metadata": {"name": "job"},
			"spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "job:1", "command": ["true"]}]}
		}]}`)},
		Engine: engine, Notifier: engine, Sink: until{stop}, Root: root,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := a.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: job has ended
}
