package process_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// A program that calls Shim first thing in main can run containers with nothing but a directory.
func Example() {
	root, err := os.MkdirTemp("", "engine")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	engine, err := process.New(process.Config{Root: root})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	pod := runtime.PodRef{Namespace: "default", Name: "web", UID: "1"}
	sandbox, err := engine.RunSandbox(ctx, &runtime.SandboxConfig{Pod: pod})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.RemoveSandbox(ctx, sandbox)
	id, err := engine.CreateContainer(ctx, sandbox, &runtime.ContainerConfig{
		Pod: pod, Name: "app", Image: "host", Command: []string{"sleep", "1000"},
	})
	if err == nil {
		err = engine.StartContainer(ctx, id)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	said, err := engine.Exec(ctx, id, []string{"echo", "hello from beside it"})
	fmt.Print(string(said.Output))
	if err == nil {
		err = engine.StopContainer(ctx, id, 10*time.Second)
	}
	c, _ := engine.Container(ctx, id)
	fmt.Println(c.State, c.ExitCode, err)
	// Output:
	// hello from beside it
	// exited 143 <nil>
}
