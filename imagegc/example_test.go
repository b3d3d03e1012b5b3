package imagegc_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// instances removes containers of an engine that writes no logs.
type instances struct{ *runtimetest.Engine }

func (i instances) RemoveInstance(ctx context.Context, id string) error {
	return i.RemoveContainer(ctx, id)
}

func ExampleDead() {
	ctx := context.Background()
	engine := runtimetest.New(runtime.Image{ID: "busybox"})
	pod := runtime.PodRef{Namespace: "default", Name: "crashing", UID: "u1"}
	sandbox, _ := engine.RunSandbox(ctx, &runtime.SandboxConfig{Pod: pod})
	for attempt := range uint32(4) {
		id, _ := engine.CreateContainer(ctx, sandbox, &runtime.ContainerConfig{
			Pod: pod, Name: "main", Attempt: attempt, Image: "busybox", Command: []string{"sh", "-c", "exit 1"},
		})
		_ = engine.StartContainer(ctx, id)
	}

	dead, err := imagegc.NewDead(imagegc.DeadConfig{
		Containers: engine, Sandboxes: engine, Instances: instances{engine},
		Removable: func(types.UID) bool { return false }, // a syncloop.Roster knows
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = dead.Collect(ctx) // what Run does each minute

	left, _ := engine.ListContainers(ctx, runtime.Filter{})
	for _, c := range left {
		fmt.Println(c.Name, c.Restarts, c.State)
	}
	// Output: main 3 exited
}
