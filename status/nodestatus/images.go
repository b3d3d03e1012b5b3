package nodestatus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const namesPerImage = 5

// Images sets the list by which a scheduler prefers nodes that have an image already: the biggest ones, at most that many,
// each with up to five names, digests first. At most 0: none; below 0: all.
func Images(list func(ctx context.Context) ([]runtime.Image, error), most int) Setter {
	return func(ctx context.Context, node *v1.Node) error {
		images, err := list(ctx)
		if err != nil {
			return fmt.Errorf("list images: %w", err)
		}
		node.Status.Images = biggest(images, most)
		return nil
	}
}

// biggest is the same for the same images, in whatever order they come.
func biggest(images []runtime.Image, most int) []v1.ContainerImage {
	images = slices.Clone(images)
	slices.SortFunc(images, func(a, b runtime.Image) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), strings.Compare(a.ID, b.ID))
	})
	if most >= 0 {
		images = images[:min(most, len(images))]
	}
	var out []v1.ContainerImage
	for _, i := range images {
		names := append(slices.Sorted(slices.Values(i.Digests)), slices.Sorted(slices.Values(i.Tags))...)
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), namesPerImage)], SizeBytes: i.Size})
	}
	return out
}
