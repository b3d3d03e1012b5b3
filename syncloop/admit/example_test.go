package admit_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
)

// What a node without an API server refuses.
func Example() {
	admitters := []syncloop.Admitter{
		admit.Sysctls{Unsafe: []string{"net.core.somaxconn"}},
		admit.Platform{OS: "linux"},
		admit.Fit{},
	}
	web := func(name string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}},
		}
	}
	for _, a := range admitters {
		if err := a.Admit(context.Background(), web("second"), []*v1.Pod{web("first")}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports
}
