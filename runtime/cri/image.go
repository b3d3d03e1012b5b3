package cri

import (
	"context"
	"fmt"
	"math"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// PullImage brings an image; it may take as long as ctx lasts. Its errors are the runtime's words alone:
// what they begin with tells kinds apart (RegistryUnavailable, SignatureValidationFailed).
func (e *Engine) PullImage(ctx context.Context, r runtime.PullRequest) (string, error) {
	q := &cri.PullImageRequest{
		Image: &cri.ImageSpec{Image: r.Image, RuntimeHandler: r.Handler, Annotations: r.Annotations},
		Auth:  auth(r.Auth),
	}
	if r.Sandbox != nil {
		q.SandboxConfig = sandboxConfig(r.Sandbox)
	}
	a, err := invoke(ctx, e, call{op: "pull_image", endless: true}, e.image.PullImage, q)
	return named("pull image "+r.Image, a.GetImageRef(), err)
}

// Image finds an image by ID, tag or digest.
func (e *Engine) Image(ctx context.Context, ref string) (runtime.Image, error) {
	what := "look at image " + ref
	q := &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}}
	a, err := invoke(ctx, e, call{op: "image_status", what: what}, e.image.ImageStatus, q)
	switch i := a.GetImage(); {
	case err != nil:
		return runtime.Image{}, err
	case i == nil:
		return runtime.Image{}, fmt.Errorf("%s: %w", what, runtime.ErrNotFound)
	case i.GetId() == "" || i.GetSize() == 0:
		return runtime.Image{}, fmt.Errorf("%s: the runtime told no ID or no size", what)
	default:
		return seenImage(i), nil
	}
}

// ListImages is all images of this host.
func (e *Engine) ListImages(ctx context.Context) ([]runtime.Image, error) {
	a, err := invoke(ctx, e, call{op: "list_images", what: "list images"}, e.image.ListImages, &cri.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	list := make([]runtime.Image, 0, len(a.GetImages()))
	for _, i := range a.GetImages() {
		list = append(list, seenImage(i))
	}
	return list, nil
}

// RemoveImage removes an image with all its names.
func (e *Engine) RemoveImage(ctx context.Context, id string) error {
	q := &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: id}}
	_, err := invoke(ctx, e, call{op: "remove_image", what: "remove image " + id}, e.image.RemoveImage, q)
	return gone(err)
}

func seenImage(i *cri.Image) runtime.Image {
	image := runtime.Image{
		ID: i.GetId(), Tags: i.GetRepoTags(), Digests: i.GetRepoDigests(),
		Size: int64(min(i.GetSize(), math.MaxInt64)), User: i.GetUsername(), Pinned: i.GetPinned(),
		Handler: i.GetSpec().GetRuntimeHandler(),
	}
	if i.GetUid() != nil {
		image.UID = new(i.GetUid().GetValue())
	}
	return image
}

// auth says in CRI how to open a registry. A token is what docker's configuration calls identity token.
func auth(a *runtime.Auth) *cri.AuthConfig {
	if a == nil {
		return nil
	}
	return &cri.AuthConfig{Username: a.Username, Password: a.Password, ServerAddress: a.Server, IdentityToken: a.Token}
}
