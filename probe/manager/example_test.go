package manager_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func Example() {
	changed := make(chan types.UID, 1)
	m, err := manager.New(manager.Config{
		Changed: func(uid types.UID) { changed <- uid },
		// Without Check, targets are asked over the network and by Exec.
		Check: func(_ context.Context, t manager.Target, _ *v1.Probe) (probe.Result, string, error) {
			return probe.Success, "asked " + t.Container + " at " + t.IP, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()

	pod := &v1.Pod{}
	pod.UID = "1234"
	pod.Spec.Containers = []v1.Container{{Name: "web", ReadinessProbe: &v1.Probe{
		ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/ready"}},
	}}}
	m.Track(pod, runtime.Pod{
		IPs:        []string{"10.0.0.5"},
		Containers: []runtime.Container{{ID: "abc", Name: "web", State: runtime.Running, Started: time.Now()}},
	}, false)
	fmt.Println(m.Results(pod.UID)["abc"].Readiness)

	uid := <-changed
	fmt.Println(uid, m.Results(uid)["abc"].Readiness)

	stop()
	fmt.Println(<-done)
	// Output:
	// failing
	// 1234 passing
	// <nil>
}
