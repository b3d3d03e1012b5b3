//go:build !linux

package stats

import (
	"io/fs"
	"os"
)

func fileOf(info fs.FileInfo) file { return file{links: 1, bytes: info.Size()} }

func readHost(name string, buf []byte) (filled []byte, n int, err error) {
	b, err := os.ReadFile(name)
	return append(buf[:0], b...), len(b), err
}
