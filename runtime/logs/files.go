package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A rotated log has the name of the log and the time it was moved away; those that are no longer followed are compressed.
const (
	nameTime   = "20060102-150405"
	packed     = ".gz"
	unfinished = ".tmp"
)

// rotated lists the names of files that rotations left beside path, finished or not. Others are nobody's business.
func rotated(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("look for rotated logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		rest = strings.TrimSuffix(strings.TrimSuffix(rest, unfinished), packed)
		if _, err := time.Parse(nameTime, rest); ok && err == nil && e.Type().IsRegular() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// sortOut says which rotated files go, so that the newest keep of them stay, and which of those are to be compressed. What was
// not finished goes, and a plain file whose compressed one is finished.
func sortOut(names []string, keep int) (remove, pack []string) {
	var stay []string
	for _, n := range slices.Sorted(slices.Values(names)) {
		if strings.HasSuffix(n, unfinished) || slices.Contains(names, n+packed) {
			remove = append(remove, n)
			continue
		}
		stay = append(stay, n)
	}
	over := max(len(stay)-keep, 0)
	remove = append(remove, stay[:over]...)
	for _, n := range stay[over:] {
		if !strings.HasSuffix(n, packed) {
			pack = append(pack, n)
		}
	}
	return remove, pack
}

// move renames a log to the time it is, or to the next second that is later than those of all files moved before: names are the
// order in which people read them, and no file may replace another.
func move(path string, now time.Time) (moved string, err error) {
	names, err := rotated(path)
	if err != nil {
		return "", err
	}
	prefix := path + "."
	moved = prefix + now.Format(nameTime)
	for _, n := range names {
		text := strings.TrimSuffix(strings.TrimSuffix(n, unfinished), packed)[len(filepath.Base(path))+1:]
		at, err := time.ParseInLocation(nameTime, text, now.Location())
		if next := prefix + at.Add(time.Second).Format(nameTime); err == nil && next > moved {
			moved = next
		}
	}
	if err := os.Rename(path, moved); err != nil {
		return "", fmt.Errorf("move the log away: %w", err)
	}
	return moved, nil
}

// putBack undoes a move, unless there is a new log already.
func putBack(moved, path string) error {
	switch err := os.Link(moved, path); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return fmt.Errorf("put the log back: %w", err)
	}
	return os.Remove(moved)
}

// compress replaces a file by a compressed one with its mode and time, by which readers know it again. The file goes only
// when the other one is whole and on the disk. One that changes meanwhile stays: somebody still writes to it. One that is gone is
// fs.ErrNotExist.
func compress(ctx context.Context, path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	before, err := in.Stat()
	if err != nil {
		return err
	}
	tmp := path + packed + unfinished
	defer func() {
		if err != nil {
			_ = os.Remove(tmp) // it may not even exist
		}
	}()
	if err := pack(ctx, tmp, in, before); err != nil {
		return fmt.Errorf("compress %s: %w", path, err)
	}
	after, err := os.Stat(path)
	if err != nil {
		return err
	}
	if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return fmt.Errorf("compress %s: it is still being written to", path)
	}
	if err := os.Chtimes(tmp, before.ModTime(), before.ModTime()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path+packed); err != nil {
		return err
	}
	return os.Remove(path)
}

// pack writes a new compressed file and has it on the disk when it returns. Its header says what it was made of.
func pack(ctx context.Context, path string, in *os.File, info fs.FileInfo) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(out)
	zip.Comment = origin(info)
	_, err = io.Copy(zip, until{ctx, in})
	return errors.Join(err, zip.Close(), out.Sync(), out.Close())
}

// origin tells a file from others of the same time. Its number may come again once it is gone.
func origin(info fs.FileInfo) string {
	number := uint64(0)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		number = s.Ino
	}
	return fmt.Sprintf("inode %d size %d", number, info.Size())
}

// originOf is what a compressed file was made of, empty where nobody knows.
func originOf(path string) string {
	f, zip, err := openMoved(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	if zip == nil {
		return ""
	}
	return zip.Comment
}
