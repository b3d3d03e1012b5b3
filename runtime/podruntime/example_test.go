package podruntime_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// A pod is brought to life step by step: look, sync, until nothing is left to do. Here the engine is one in memory; with
// runtime/cri it is containerd.
func Example() {
	ctx := context.Background()
	logs, _ := os.MkdirTemp("", "logs")
	defer os.RemoveAll(logs)
	pods, err := podruntime.New(podruntime.Config{Engine: runtimetest.New(runtime.Image{ID: "web:1", Tags: []string{"web:1"}}), LogRoot: logs})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "web:1"}}},
	}
	for {
		seen, err := pods.Pod(ctx, pod.UID)
		if err != nil {
			fmt.Println(err)
			return
		}
		result, err := pods.Sync(ctx, pod, runtime.SyncInput{Seen: seen})
		if err != nil || !result.Acted {
			fmt.Println(seen.Containers[0].Name, "is", seen.Containers[0].State, err)
			return
		}
	}
	// Output: app is running <nil>
}
