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
	size := uint64(s.Frsize) // the types differ between machines
	if size == 0 {
		size = uint64(s.Bsize)
	}
	return DiskUsage{
		Capacity: int64(size * s.Blocks), Free: int64(size * s.Bfree), Available: int64(size * s.Bavail),
		Inodes: int64(s.Files), InodesFree: int64(s.Ffree),
	}, nil
}
