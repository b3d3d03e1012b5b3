package runtimetest

import (
	"cmp"
	"context"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ContainerStats is one entry for each running container; its figures are zero.
func (e *Engine) ContainerStats(ctx context.Context, f runtime.Filter) ([]runtime.Usage, error) {
	return do(ctx, e, Call{Method: "ContainerStats"}, func() ([]runtime.Usage, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		var list []runtime.Usage
		for _, c := range e.containers {
			if c.State == runtime.Running && selects(f, c.Pod.UID, true) {
				list = append(list, runtime.Usage{Container: c.ID, Sandbox: c.SandboxID, At: time.Now()})
			}
		}
		return list, nil
	})
}

// ImageFS is one file system that holds the sizes of all images, and perhaps one where containers write.
func (e *Engine) ImageFS(ctx context.Context) ([]runtime.FSUsage, error) {
	return do(ctx, e, Call{Method: "ImageFS"}, func() ([]runtime.FSUsage, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		fs := runtime.FSUsage{Mountpoint: cmp.Or(e.ImageDir, "/var/lib/runtimetest")}
		for _, i := range e.images {
			fs.Used += i.Size
		}
		if e.WriteDir == "" {
			return []runtime.FSUsage{fs}, nil
		}
		return []runtime.FSUsage{fs, {Mountpoint: e.WriteDir, Written: true}}, nil
	})
}
