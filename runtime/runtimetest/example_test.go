package runtimetest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func ExampleEngine() {
	ctx := context.Background()
	engine := runtimetest.New(runtime.Image{ID: "sha256:1", Tags: []string{"example.com/busybox:1"}})
	pod := runtime.PodRef{Namespace: "default", Name: "job", UID: "u1"}
	sandbox, _ := engine.RunSandbox(ctx, &runtime.SandboxConfig{Pod: pod})
	id, _ := engine.CreateContainer(ctx, sandbox, &runtime.ContainerConfig{
		Pod: pod, Name: "main", Image: "example.com/busybox:1", Command: []string{"sh", "-c", "exit 3"},
	})
	_ = engine.StartContainer(ctx, id)
	c, _ := engine.Container(ctx, id)
	fmt.Println(c.Pod, c.Name, c.State, c.ExitCode)
	// Output: default/job(u1) main exited 3
}

func ExampleEngine_Inject() {
	engine := runtimetest.New()
	engine.Inject("ListImages", runtimetest.Times(1, runtimetest.Fail(errors.New("disk is full"))))
	for range 2 {
		_, err := engine.ListImages(context.Background())
		fmt.Println(err)
	}
	// Output:
	// disk is full
	// <nil>
}
