package bed

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// ShareMounts lets mounts below a directory be seen by containers that ask for it, and theirs by the node. A machine that systemd
// has started shares all of its mounts, others share none. What this mounts, Clean takes away with the bed around it.
func ShareMounts(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if slices.Contains(mountPoints(string(mounts), filepath.Dir(dir)), dir) {
		return nil // by an earlier call
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s onto itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts below %s: %w", dir, err)
	}
	return nil
}
