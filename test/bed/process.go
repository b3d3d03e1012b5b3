package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// running is the process number of this bed's containerd; zero: it does not run. The number in the pid
// file counts only while that process is what it should be: numbers are used again.
func (b *Bed) running() int {
	data, err := os.ReadFile(b.path("containerd.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || !b.isContainerd(arguments(pid)) {
		return 0
	}
	return pid
}

func (b *Bed) isContainerd(args []string) bool {
	i := slices.Index(args, "--config")
	return i > 0 && i+1 < len(args) && args[i+1] == b.path("containerd.toml")
}

func (b *Bed) isShim(args []string) bool {
	i := slices.Index(args, "-address")
	return i > 0 && i+1 < len(args) && args[i+1] == b.path("containerd.sock") &&
		filepath.Base(args[0]) == "containerd-shim-runc-v2"
}

// arguments are the words a process was started with; none for one that has ended, also when nobody has
// asked for its exit code yet.
func arguments(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(data, "\x00")), "\x00")
}

// processes finds processes by their arguments.
func processes(match func(args []string) bool) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	var found []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err == nil && match(arguments(pid)) {
			found = append(found, pid)
		}
	}
	return found
}

// endProcess sends a signal and waits for the end of a process, killing it after ten seconds. The
// process is held by a handle before it is checked, so that no other is hit.
func endProcess(ctx context.Context, pid int, match func(args []string) bool, sig syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil // gone
	}
	defer func() { _ = p.Release() }()
	patience := time.After(10 * time.Second)
	for match(arguments(pid)) {
		if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal process %d: %w", pid, err)
		}
		wait := time.After(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience:
			sig = syscall.SIGKILL
		case <-wait:
		}
	}
	return nil
}
