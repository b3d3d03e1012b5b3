package nodestatus

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func manyImages(n int) func(context.Context) ([]runtime.Image, error) {
	var all []runtime.Image
	for i := range n {
		name := fmt.Sprintf("example.org/image-%03d", i)
		all = append(all, runtime.Image{
			ID: fmt.Sprintf("sha256:%03d", (i*7)%n), Size: int64(i/2) << 20, Tags: []string{name + ":1"}, Digests: []string{name + "@sha256:1"},
		})
	}
	return func(context.Context) ([]runtime.Image, error) { return all, nil }
}
