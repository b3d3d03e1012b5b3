package status_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// A container crashed and waits for its next start.
func ExampleCompute() {
	pod := &v1.Pod{}
	pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	pod.Spec.Containers = []v1.Container{{Name: "web", Image: "example.org/web:1"}}

	s := status.Compute(status.Input{
		Pod: pod,
		Seen: runtime.Pod{
			Sandboxes:  []runtime.Sandbox{{ID: "s1", Ready: true}},
			Containers: []runtime.Container{{ID: "c1", Name: "web", SandboxID: "s1", State: runtime.Exited, ExitCode: 2, Reason: "Error"}},
			Waiting:    map[string]runtime.Waiting{"web": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
		},
		RuntimeName: "containerd",
		Now:         time.Now(),
	})

	web := s.ContainerStatuses[0]
	fmt.Println(s.Phase, web.State.Waiting.Reason, "after exit code", web.LastTerminationState.Terminated.ExitCode)
	for _, c := range s.Conditions {
		fmt.Printf("%s=%s\n", c.Type, c.Status)
	}
	// Output:
	// Running CrashLoopBackOff after exit code 2
	// PodReadyToStartContainers=True
	// Initialized=True
	// Ready=False
	// ContainersReady=False
	// PodScheduled=True
}

// console is a Sink.
type console struct{}

func (console) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error {
	fmt.Println(pod.Name, "is", s.Phase)
	return nil
}

func (console) Finished(_ context.Context, pod *v1.Pod) error {
	fmt.Println(pod.Name, "is over")
	return nil
}

// The Manager takes statuses at any time and hands on the newest.
func ExampleManager() {
	m, err := status.New(status.Config{Sink: console{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	pod := &v1.Pod{}
	pod.Name, pod.UID = "web", "4711"
	_ = m.UpdateStatus(ctx, pod, v1.PodStatus{Phase: v1.PodPending})
	_ = m.UpdateStatus(ctx, pod, v1.PodStatus{Phase: v1.PodRunning})
	_ = m.UpdateStatus(ctx, pod, v1.PodStatus{Phase: v1.PodSucceeded})
	_ = m.Finished(ctx, pod)

	stop() // what is queued is still delivered
	if err := m.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// web is Succeeded
	// web is over
}
