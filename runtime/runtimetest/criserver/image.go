package criserver

import (
	"context"
	"errors"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// imageService is the half of CRI about images.
type imageService struct {
	cri.UnimplementedImageServiceServer
	engine *runtimetest.Engine
}

func (s *imageService) PullImage(ctx context.Context, q *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	r := runtime.PullRequest{
		Image: q.GetImage().GetImage(), Handler: q.GetImage().GetRuntimeHandler(), Annotations: q.GetImage().GetAnnotations(),
	}
	if a := q.GetAuth(); a != nil {
		r.Auth = &runtime.Auth{
			Username: a.GetUsername(), Password: a.GetPassword(), Server: a.GetServerAddress(), Token: a.GetIdentityToken(),
		}
	}
	if c := q.GetSandboxConfig(); c != nil {
		r.Sandbox = sandboxConfig(c)
	}
	ref, err := s.engine.PullImage(ctx, r)
	return answer(&cri.PullImageResponse{ImageRef: ref}, err)
}

// ImageStatus has no image in it when there is none: that is no error in CRI.
func (s *imageService) ImageStatus(ctx context.Context, q *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	i, err := s.engine.Image(ctx, q.GetImage().GetImage())
	if errors.Is(err, runtime.ErrNotFound) {
		return &cri.ImageStatusResponse{}, nil
	}
	return answer(&cri.ImageStatusResponse{Image: image(i)}, err)
}

func (s *imageService) ListImages(ctx context.Context, _ *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	list, err := s.engine.ListImages(ctx)
	a := &cri.ListImagesResponse{}
	for _, i := range list {
		a.Images = append(a.Images, image(i))
	}
	return answer(a, err)
}

func (s *imageService) RemoveImage(ctx context.Context, q *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	return answer(&cri.RemoveImageResponse{}, s.engine.RemoveImage(ctx, q.GetImage().GetImage()))
}

func (s *imageService) ImageFsInfo(ctx context.Context, _ *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	list, err := s.engine.ImageFS(ctx)
	a := &cri.ImageFsInfoResponse{}
	for _, fs := range list {
		u := &cri.FilesystemUsage{FsId: &cri.FilesystemIdentifier{Mountpoint: fs.Mountpoint}, UsedBytes: figure(fs.Used)}
		if fs.Written {
			a.ContainerFilesystems = append(a.ContainerFilesystems, u)
		} else {
			a.ImageFilesystems = append(a.ImageFilesystems, u)
		}
	}
	return answer(a, err)
}

func image(i runtime.Image) *cri.Image {
	k := &cri.Image{
		Id: i.ID, RepoTags: i.Tags, RepoDigests: i.Digests, Size: uint64(i.Size), Username: i.User, Pinned: i.Pinned,
		Spec: &cri.ImageSpec{RuntimeHandler: i.Handler},
	}
	if i.UID != nil {
		k.Uid = &cri.Int64Value{Value: *i.UID}
	}
	return k
}

func figure(n int64) *cri.UInt64Value { return &cri.UInt64Value{Value: uint64(n)} }
