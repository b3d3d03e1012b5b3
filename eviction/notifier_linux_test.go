package eviction

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// memoryCgroup makes a cgroup of version 1 with this process's next pages in it, as long as in runs.
func memoryCgroup(t *testing.T) (pods string, in func(func())) {
	t.Helper()
	pods = fmt.Sprintf("/kubeletkit-eviction-%d", os.Getpid())
	dir := "/sys/fs/cgroup/memory" + pods
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("this needs root and a memory cgroup of version 1: %v", err)
	}
	t.Cleanup(func() {
		_ = write(dir+"/memory.force_empty", "0") // what was charged stays with the parent
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return pods, func(f func()) {
		was, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		home := "/sys/fs/cgroup/memory"
		for line := range strings.Lines(string(was)) {
			if _, path, ok := strings.Cut(strings.TrimSpace(line), ":memory:"); ok {
				home += path
			}
		}
		pid := fmt.Sprint(os.Getpid())
		if err := write(dir+"/cgroup.procs", pid); err != nil {
			t.Fatal(err)
		}
		f()
		if err := write(home+"/cgroup.procs", pid); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheKernelTellsWhenAThresholdIsCrossed(t *testing.T) {
	pods, in := memoryCgroup(t)
	n, err := CgroupNotifier(pods)
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	told := make(chan error, 1)
	go func() { told <- n.Wait(t.Context(), AllocatableMemoryAvailable, size/2) }()
	var block []byte
	in(func() {
		select {
		case err := <-told:
			t.Errorf("told before: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		if block, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < size; i += os.Getpagesize() {
			block[i] = 1
		}
		select {
		case err := <-told:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the kernel told nothing")
		}
		if err := n.Wait(t.Context(), AllocatableMemoryAvailable, size/2); err != nil {
			t.Errorf("what was crossed before is told at once: %v", err)
		}
	})
	if err := unix.Munmap(block); err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := n.Wait(ctx, MemoryAvailable, 1<<60); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := n.Wait(t.Context(), NodeFsAvailable, 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func TestWithVersionTwoUsageIsLookedAt(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name+"~", []byte(text), 0o644), os.Rename(name+"~", name)); err != nil {
			t.Fatal(err)
		}
	}
	put("cgroup.controllers", "memory\n")
	put("memory.stat", "anon 100\nfile 50\nkernel 7\n")
	put("kubepods/memory.current", "99\n")
	n, err := newCgroups(root, root, "kubepods")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Wait(t.Context(), MemoryAvailable, 149); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := n.Wait(ctx, MemoryAvailable, 150); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	told := make(chan error, 1)
	go func() { told <- n.Wait(t.Context(), AllocatableMemoryAvailable, 100) }()
	put("kubepods/memory.current", "101\n")
	if err := <-told; err != nil {
		t.Error(err)
	}
	put("memory.stat", "nonsense")
	if err := n.Wait(t.Context(), MemoryAvailable, 1); err == nil {
		t.Error("no error")
	}
}

// Whatever takes memory as fast as a kernel gives it is seen before half of the default threshold is gone.
func TestPause(t *testing.T) {
	for left, want := range map[int64]time.Duration{
		0: often, 1 << 20: often, 50 << 20: 24414062, 512 << 20: 250 * time.Millisecond, 1 << 30: seldom, 1 << 31: seldom, 1 << 62: seldom,
	} {
		if got := pause(left); got != want {
			t.Errorf("%d bytes left: %v, want %v", left, got, want)
		}
	}
}

// urgent is a file descriptor that tells of something urgent when it is asked to, as the kernel's file of stalls does.
func urgent(t *testing.T) (fd int, tell func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var files []int
	for _, c := range []net.Conn{in, out} {
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = f.Close(), c.Close() })
		files = append(files, int(f.Fd()))
	}
	return files[0], func() {
		if err := unix.Sendto(files[1], []byte{1}, unix.MSG_OOB, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestStallsCountWhenTheMachineIsShortOfMemory(t *testing.T) {
	for rule, row := range map[string]struct {
		meminfo string
		told    bool
	}{
		"little is available": {"MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  250 kB\n", true},
		"much is":             {"MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  251 kB\n", false},
		"nobody can say":      {"", true},
	} {
		c := cgroupV2{proc: t.TempDir()}
		if row.meminfo != "" {
			if err := os.WriteFile(filepath.Join(c.proc, "meminfo"), []byte(row.meminfo), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		fd, stall := urgent(t)
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		stall()
		err := c.watch(ctx, []unix.PollFd{{Fd: -1}, {Fd: int32(fd), Events: unix.POLLPRI}}, 1000, func() (int64, error) {
			if looks++; looks == 4 { // stalls three times, and nothing comes of it
				cancel()
			}
			return 0, nil
		})
		cancel()
		if told := err == nil; told != row.told || !told && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v after %d looks, want told %v", rule, err, looks, row.told)
		}
	}
}

func TestThePressureFileTakesTheTrigger(t *testing.T) {
	if _, err := os.Stat("/proc/pressure/memory"); err != nil || os.Getuid() != 0 {
		t.Skip("this needs root and a kernel with PSI")
	}
	f := cgroupV2{proc: "/proc"}.pressure()
	if f == nil {
		t.Fatal("the trigger was refused")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
