package stats

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// diskUsage asks the kernel.
func diskUsage(path string) (DiskUsage, error) {
	var s unix.Statfs_t
	for {
		switch err := unix.Statfs(path, &s); err {
		case nil:
		case unix.EINTR:
			continue
		default:
			return DiskUsage{}, fmt.Errorf("measure a file system: %w", &fs.PathError{Op: "statfs", Path: path, Err: err})
		}
		break
	}
	size := s.Frsize
	if size == 0 {
		size = s.Bsize
	}
	return DiskUsage{
		Capacity: size * int64(s.Blocks), Free: size * int64(s.Bfree), Available: size * int64(s.Bavail),
		Inodes: int64(s.Files), InodesFree: int64(s.Ffree),
	}, nil
}
