package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Remote adds images that PullImage finds in registries. A registry that is slow, away, or wants
// credentials is a Fault of PullImage.
func (e *Engine) Remote(images ...runtime.Image) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remote = append(e.remote, images...)
}

// PullImage brings a Remote image and answers its ID.
func (e *Engine) PullImage(ctx context.Context, r runtime.PullRequest) (string, error) {
	return do(ctx, e, Call{Method: "PullImage", ID: r.Image, Pull: &r}, func() (string, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		i := slices.IndexFunc(e.remote, func(i runtime.Image) bool { return named(i, r.Image) })
		if i < 0 {
			return "", fmt.Errorf("pull image %q: no registry has it", r.Image)
		}
		image := e.remote[i]
		e.images = slices.DeleteFunc(e.images, func(i runtime.Image) bool { return i.ID == image.ID })
		e.images = append(e.images, image)
		if r.Progress != nil {
			r.Progress(image.Size, image.Size)
		}
		return image.ID, nil
	})
}

// Image finds an image by ID, tag or digest; a name without either means the tag latest.
func (e *Engine) Image(ctx context.Context, ref string) (runtime.Image, error) {
	return do(ctx, e, Call{Method: "Image", ID: ref}, func() (runtime.Image, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		image, ok := e.find(ref)
		if !ok {
			return runtime.Image{}, notFound("image", ref)
		}
		return image, nil
	})
}

// ListImages is what New was given and PullImage brought, without what was removed.
func (e *Engine) ListImages(ctx context.Context) ([]runtime.Image, error) {
	return do(ctx, e, Call{Method: "ListImages"}, func() ([]runtime.Image, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Clone(e.images), nil
	})
}

// RemoveImage removes an image, also one that containers were made from.
func (e *Engine) RemoveImage(ctx context.Context, id string) error {
	return doErr(ctx, e, Call{Method: "RemoveImage", ID: id}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.images = slices.DeleteFunc(e.images, func(i runtime.Image) bool { return named(i, id) })
		return nil
	})
}

// find looks for an image of this host. The caller holds mu.
func (e *Engine) find(ref string) (runtime.Image, bool) {
	i := slices.IndexFunc(e.images, func(i runtime.Image) bool { return named(i, ref) })
	if i < 0 {
		return runtime.Image{}, false
	}
	return e.images[i], true
}

// named says whether ref is a name of the image.
func named(i runtime.Image, ref string) bool {
	if ref == i.ID || slices.Contains(i.Tags, ref) || slices.Contains(i.Digests, ref) {
		return ref != ""
	}
	last := ref[strings.LastIndexByte(ref, '/')+1:]
	return !strings.ContainsAny(last, ":@") && slices.Contains(i.Tags, ref+":latest")
}

func firstOr(list []string, other string) string {
	if len(list) > 0 {
		return list[0]
	}
	return other
}

func ignoreNotFound(err error) error {
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	return err
}
