package podcases

import "github.com/kubeletkit/kubeletkit/runtime"

// Images are those the pods name: one of root, one of a user with a number, one of a user with a name, one with files alone.
func Images() []runtime.Image {
	return []runtime.Image{
		{ID: "sha256:1", Tags: []string{"busybox", "busybox:latest", "busybox:1"}, Size: 1 << 20},
		{ID: "sha256:2", Tags: []string{"number:1"}, Size: 1 << 20, UID: new(int64(1234))},
		{ID: "sha256:3", Tags: []string{"name:1"}, Size: 1 << 20, User: "www"},
		{ID: "sha256:4", Tags: []string{"files:1"}, Size: 1 << 20},
	}
}
