package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// names reads the name of an image. ref has the tag that is meant when there is neither tag nor digest; short names stay
// short in it: which registry they mean is the engine's to know. repository is the full name, as registries are looked up by.
func names(image string) (ref, repository string, err error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", "", err
	}
	if reference.IsNameOnly(named) {
		image += ":latest"
	}
	return image, named.Name(), nil
}

// bare is an image as a pod names it, without tag and digest.
func bare(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", image, err)
	}
	if d, ok := named.(reference.Digested); ok {
		image = strings.TrimSuffix(image, "@"+d.Digest().String())
	}
	if t, ok := named.(reference.Tagged); ok {
		image = strings.TrimSuffix(image, ":"+t.Tag())
	}
	return image, nil
}
