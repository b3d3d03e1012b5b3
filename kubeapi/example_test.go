package kubeapi_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/kubeapi"
)

// A node that shows its pods and tells how they are. For a true server the Config comes from LoadREST.
func Example() {
	server := apifake.New()
	defer server.Close()
	server.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	server.Put(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1.PodSpec{NodeName: "node-1"}})

	client, err := kubeapi.New(kubeapi.Config{REST: server.Config(), Node: "node-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.CloseIdle()
	source, sink := &kubeapi.Source{Client: client}, &kubeapi.Sink{Client: client}

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- client.Run(ctx) }() // follows the Node, which the source waits for
	err = source.Run(ctx, func(pods []*v1.Pod, complete bool) {
		for _, pod := range pods {
			fmt.Printf("%s is %q, complete: %t\n", pod.Name, pod.Status.Phase, complete)
			if pod.Status.Phase == v1.PodRunning {
				stop()
				return
			}
			if err := sink.UpdateStatus(ctx, pod, v1.PodStatus{Phase: v1.PodRunning}); err != nil {
				fmt.Println(err)
			}
		}
	})
	fmt.Println(err, <-done)
	// Output:
	// web is "", complete: true
	// web is "Running", complete: true
	// <nil> <nil>
}

// What is wrong with a kubeconfig, where, and what to do.
func ExampleLoadREST() {
	_, err := kubeapi.LoadREST("/etc/kubernetes/no-such.conf")
	fmt.Println(err)
	// Output: kubeconfig /etc/kubernetes/no-such.conf: there is no such file; give the path of one, or make one with a bootstrap token: file does not exist
}
