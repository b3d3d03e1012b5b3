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

// disk is a hundred bytes large, of which ten are available.
type disk struct{}

func (disk) ImageDisk(context.Context) (capacity, available int64, err error) { return 100, 10, nil }

func ExampleCollector_Plan() {
	engine := runtimetest.New(
		runtime.Image{ID: "sha256:1", Tags: []string{"app:1"}, Size: 60},
		runtime.Image{ID: "sha256:2", Tags: []string{"app:2"}, Size: 30},
		runtime.Image{ID: "sha256:3", Tags: []string{"pause:3"}, Size: 1, Pinned: true},
	)
	images, err := imagegc.New(imagegc.Config{Images: engine, Users: engine, Disk: disk{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	steps, err := images.Plan(context.Background()) // a Collector that has just come to life knows nothing of earlier use
	for _, s := range steps {
		fmt.Println(s.Name, s.Remove, s.Why)
	}
	fmt.Println(err)
	// Output:
	// app:1 true the disk is filling up, and nobody was seen using it
	// pause:3 false it is pinned
	// app:2 false nobody uses it, but there is room
	// <nil>
}
