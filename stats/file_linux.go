package stats

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

const block = 512 // bytes; what the kernel counts in, whatever the file system does

func fileOf(info fs.FileInfo) file {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return file{links: 1, bytes: info.Size()}
	}
	return file{device: s.Dev, inode: s.Ino, links: uint64(s.Nlink), bytes: s.Blocks * block} //nolint:unconvert // narrower on arm64
}

// readHost reads a file of the kernel into a buffer, and returns that, or a larger one, and how much of it was filled.
func readHost(name string, buf []byte) (filled []byte, n int, err error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return buf, 0, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // it was only read
	for {
		k, err := unix.Read(fd, buf[n:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return buf, n, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		n += max(k, 0)
		switch {
		case n == len(buf):
			buf = append(buf, make([]byte, len(buf))...)
		case k <= 0 || n < whole:
			return buf, n, nil
		}
	}
}

// whole is how much the kernel gives at once at least, where there is more.
const whole = 2 << 10
