package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// alone keeps other agents out of a root directory until release is called or this process ends: two would fight over pods,
// volumes and files. One that is still ending is waited for. A file system without locks, or without room for the file, keeps nobody out: an agent must start on a
// full disk, which it is there to empty.
func alone(ctx context.Context, root string, patience time.Duration, log *slog.Logger) (release func(), err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("make --root-dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(root, "agent.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		log.Warn("the root directory cannot be locked; see that no other agent has it", "root", root, "err", err)
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("keep other agents out of --root-dir: %w", err)
	}
	for deadline, said := time.Now().Add(patience), false; ; said = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			if err := errors.Join(f.Truncate(0), write(f, os.Getpid())); err != nil {
				log.Warn("other agents are kept out of the root directory, but are not told by whom", "err", err)
			}
			return func() { _ = f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			log.Warn("the root directory cannot be locked; see that no other agent has it", "root", root, "err", err)
			return func() { _ = f.Close() }, nil
		case time.Now().After(deadline):
			_ = f.Close()
			return nil, fmt.Errorf("another agent (%s) runs with --root-dir=%s; stop that one, or give this one another directory", holder(f.Name()), root)
		case !said:
			log.Warn("another agent has the root directory; it is waited for", "root", root, "who", holder(f.Name()), "patience", patience)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func write(f *os.File, pid int) error {
	_, err := f.WriteAt(fmt.Appendln(nil, pid), 0)
	return err
}

// holder is who has the lock, as it wrote there.
func holder(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "it is not known which"
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 20)) // what cannot be read is not known
	return "pid " + cmp.Or(strings.TrimSpace(string(b)), "unknown")
}
