//go:build !linux

package eviction

import (
	"errors"
	"fmt"
)

// CgroupNotifier is for Linux only.
func CgroupNotifier(string) (Notifier, error) {
	return nil, fmt.Errorf("eviction: cgroups: %w", errors.ErrUnsupported)
}
