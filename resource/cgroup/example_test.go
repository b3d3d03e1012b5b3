package cgroup_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/resource/cgroup"
)

// A sandbox is put into the cgroup of its pod.
func Example() {
	tree, err := cgroup.New(cgroup.Config{PodPids: 4096})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}}
	pod.UID = "5fcb9a0f-5c1d-4a5e-9f4e-0b7d7a1f8a11"
	fmt.Println(tree.Parent(pod)) // Ensure makes it
	// Output: /kubepods/besteffort/pod5fcb9a0f-5c1d-4a5e-9f4e-0b7d7a1f8a11
}
