package image_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// An image is brought in, and a garbage collector cannot take it away before its container exists.
func Example() {
	engine := runtimetest.New(runtime.Image{ID: "sha256:1", Tags: []string{"web:1"}})
	store, err := image.New(image.Config{Images: engine})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	img, release, err := store.Ensure(ctx, &v1.Pod{}, &v1.Container{Name: "app", Image: "web:1"}, observe.Ref{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer release()
	fmt.Println(store.RemoveImage(ctx, img.ID))
	// Output: image sha256:1 is about to be used by a container: in use
}
