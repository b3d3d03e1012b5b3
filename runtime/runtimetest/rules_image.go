package runtimetest

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func imageRules() map[string]func(*scene) {
	rules := map[string]func(*scene){
		"image is found by all its names": func(s *scene) {
			image, err := s.Image(s.ctx, s.image)
			if err != nil || image.ID == "" || image.Size <= 0 {
				s.Fatalf("Image = %+v, %v", image, err)
			}
			for _, name := range slices.Concat([]string{image.ID}, image.Tags, image.Digests) {
				if other, err := s.Image(s.ctx, name); err != nil || other.ID != image.ID {
					s.Errorf("%q leads to %q, %v, want %q", name, other.ID, err, image.ID)
				}
			}
			list, err := s.ListImages(s.ctx)
			if err != nil || !slices.ContainsFunc(list, func(i runtime.Image) bool { return i.ID == image.ID }) {
				s.Errorf("ListImages has no %q, %v", image.ID, err)
			}
		},
		"image that no registry has cannot be pulled": func(s *scene) {
			// Port 1 of this host: refused at once, without a name to look up.
			ref, err := s.PullImage(s.ctx, runtime.PullRequest{Image: "127.0.0.1:1/none:1"})
			if err == nil {
				s.Errorf("PullImage = %q", ref)
			}
		},
	}
	for name, check := range rules {
		rules[name] = func(s *scene) {
			if !s.imageless {
				check(s)
			}
		}
	}
	return rules
}
