//go:build !linux

package stats

import (
	"errors"
	"fmt"
)

func diskUsage(path string) (DiskUsage, error) {
	return DiskUsage{}, fmt.Errorf("measure the file system of %s: %w on this system: give Config.Disk", path, errors.ErrUnsupported)
}
