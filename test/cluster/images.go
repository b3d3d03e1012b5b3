package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/cluster/registry"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// fillRegistry builds the images and puts them where the registries serve from, unless the programs they are
// made of are the same as the last time.
func (c *Cluster) fillRegistry(ctx context.Context) error {
	root, err := testModule()
	if err != nil {
		return err
	}
	stamp, err := imageStamp(c.self)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(c.path("images", "stamp")); err == nil && string(have) == stamp {
		return nil
	}
	c.say("building images")
	add := func(a images.Archive) error { return registry.Add(c.path("images"), a.Ref, a.Data) }
	basic, err := images.Build(ctx, root)
	if err != nil {
		return err
	}
	for _, a := range basic {
		if err := add(a); err != nil {
			return err
		}
	}
	if err := images.BuildE2E(ctx, bed.BinDir(), add); err != nil {
		return err
	}
	return os.WriteFile(c.path("images", "stamp"), []byte(stamp), 0o644)
}

// imageStamp says what images are made of: the programs in them, and the one that puts them together.
func imageStamp(self string) (string, error) {
	h := sha256.New()
	files := []string{self}
	for _, name := range ImagePrograms() {
		files = append(files, filepath.Join(filepath.Dir(bed.BinDir()), name+".program"))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		h.Write(data)
	}
	return fmt.Sprintf("%x\n", h.Sum(nil)), nil
}
