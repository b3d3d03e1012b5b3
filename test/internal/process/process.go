// Package process finds and ends processes that this program did not start itself, by what they are: a
// number alone, as a pid file has it, may belong to another process by now.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Match recognises a process by the words it was started with. It gets none for one that has ended.
type Match func(args []string) bool

// Arguments are the words a process was started with; none for one that has ended, also when nobody has
// asked for its exit code yet.
func Arguments(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(data, "\x00")), "\x00")
}

// Find looks through all processes of this machine.
func Find(match Match) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	var found []int
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil && match(Arguments(pid)) {
			found = append(found, pid)
		}
	}
	return found
}

// FromFile reads the number of a process that runs and matches; zero: there is none.
func FromFile(path string, match Match) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || !match(Arguments(pid)) {
		return 0
	}
	return pid
}

// End sends a signal and waits until the process has ended and given back its files and ports, killing it when it has not
// after ten seconds.
func End(ctx context.Context, pid int, match Match, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0) // taken before the look at what it is, so that no other is hit
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !match(Arguments(pid)) {
		return nil
	}
	patience := time.After(10 * time.Second)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	if err := signal(fd, sig); err != nil {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	for !ended(fd) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of process %d: %w", pid, ctx.Err())
		case <-patience:
			if err := signal(fd, syscall.SIGKILL); err != nil {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		case <-look.C:
		}
	}
	return nil
}

// ended says that nothing of a process is left but its exit code. Its arguments are gone before its ports are free.
func ended(fd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func signal(fd int, sig syscall.Signal) error {
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil // it has ended
}
