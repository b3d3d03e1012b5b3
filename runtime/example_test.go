package runtime_test

import (
	"context"
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// busy counts what runs. It asks for the one interface it needs, so any engine will do, and a test's fake is two methods.
func busy(ctx context.Context, l runtime.Lister) (int, error) {
	all, err := l.ListContainers(ctx, runtime.Filter{OnlyAlive: true})
	return len(all), err
}

func ExampleLister() {
	ctx := context.Background()
	engine := runtimetest.New(runtime.Image{ID: "web:1"})
	pod := runtime.PodRef{Namespace: "default", Name: "web", UID: "1"}
	sandbox, err := engine.RunSandbox(ctx, &runtime.SandboxConfig{Pod: pod})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := engine.CreateContainer(ctx, sandbox, &runtime.ContainerConfig{Pod: pod, Name: "app", Image: "web:1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(busy(ctx, engine))
	if err := engine.StartContainer(ctx, id); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(busy(ctx, engine))
	// Output:
	// 0 <nil>
	// 1 <nil>
}
