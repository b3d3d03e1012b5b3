//go:build !linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/mount-utils"
)

// removeTree removes what lies at path without following links.
func removeTree(_ context.Context, path string) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(filepath.Base(path))
}

// kernel mounts as far as this system lets it.
func kernel() (mount.Interface, func(target string) error) { return mount.New(""), nil }

func openBelow(string, string) (*os.File, error) {
	return nil, fmt.Errorf("parts of volumes need Linux: %w", errors.ErrUnsupported)
}

func words(error) string { return "" }
