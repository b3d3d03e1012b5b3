package plan_test

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// What would a kubelet do about a pod whose sandbox is there, whose init container has done its work, and whose app has
// just crashed?
func ExampleSync() {
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy:  v1.RestartPolicyOnFailure,
		InitContainers: []v1.Container{{Name: "setup"}},
		Containers:     []v1.Container{{Name: "app"}, {Name: "log"}},
	}}
	now := time.Now()
	seen := runtime.Pod{
		Sandboxes: []runtime.Sandbox{{ID: "s", Ready: true}},
		Containers: []runtime.Container{
			{Name: "app", SandboxID: "s", State: runtime.Exited, ExitCode: 1, Finished: now},
			{Name: "setup", SandboxID: "s", State: runtime.Exited},
		},
	}
	for _, a := range plan.Sync(plan.Input{Pod: pod, Seen: seen, Now: now}).Actions {
		fmt.Println(a.Verb, a.Container, a.Attempt)
	}
	// Output:
	// start app 1
	// start log 0
}
