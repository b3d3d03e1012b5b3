package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Events tells what engines and shims over this Root change. That a shim was killed is found by looking.
func (e *Engine) Events(ctx context.Context, tell func(runtime.Event)) error {
	err := e.begin(ctx)
	if err == nil {
		err = e.follow(ctx, tell)
	}
	if ctx.Err() != nil {
		err = nil // whatever else there was, it ended as it was asked to
	}
	return err
}

func (e *Engine) follow(ctx context.Context, tell func(runtime.Event)) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("follow events: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	if _, err := unix.InotifyAddWatch(fd, filepath.Join(e.cfg.Root, "changes"), unix.IN_CLOSE_WRITE); err != nil {
		return fmt.Errorf("follow events: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	names := map[string]runtime.PodRef{} // of what may be gone when its last event comes
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
		ids, err := changes(buf[:n])
		if err != nil {
			return err
		}
		for _, id := range ids {
			pod, there := e.podOf(id)
			if !there {
				pod = names[id]
				delete(names, id)
			} else {
				names[id] = pod
			}
			if pod.UID != "" {
				tell(runtime.Event{Pod: pod, Container: id, At: time.Now()})
			}
		}
	}
}

// podOf is whose sandbox or container that is.
func (e *Engine) podOf(id string) (pod runtime.PodRef, there bool) {
	if c, err := e.container(id); err == nil {
		return c.Config.Pod, true
	}
	if s, err := e.sandbox(id); err == nil {
		return s.Config.Pod, true
	}
	return pod, false
}

// changes reads the names out of what inotify gave.
func changes(b []byte) (names []string, err error) {
	for len(b) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(b[4:])
		size := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if mask&(unix.IN_Q_OVERFLOW|unix.IN_IGNORED) != 0 || size > len(b) {
			return names, errors.New("events were lost")
		}
		names = append(names, strings.TrimRight(string(b[:size]), "\x00"))
		b = b[size:]
	}
	return names, nil
}
