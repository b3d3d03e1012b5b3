package eviction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Where no threshold can be set usage is looked at: seldom when much is left, and so often when little is that nothing which
// takes memory at this rate is there before.
const (
	seldom  = 500 * time.Millisecond
	often   = 10 * time.Millisecond
	fastest = 2 << 30 // bytes a second
)

// pause is how long nobody needs to look, with so many bytes left.
func pause(left int64) time.Duration {
	if left > fastest {
		return seldom
	}
	return min(max(time.Duration(left)*time.Second/fastest, often), seldom)
}

// What asks for a notice when processes waited for memory for 150 of 1000 milliseconds. Without CAP_SYS_RESOURCE the kernel
// looks at multiples of two seconds only.
const (
	stalled     = "some 150000 1000000\n"
	stalledLong = "some 300000 2000000\n"
)

// CgroupNotifier returns the Notifier of this host: with cgroups of version 1 the kernel tells when a threshold of usage is
// crossed; with version 2 usage is looked at, twice a second and up to a hundred times when little is left, and the kernel tells
// when processes have to wait for memory of a machine that is short of it (PSI). pods is the cgroup of all pods below the root ("/kubepods"); empty: there is none.
func CgroupNotifier(pods string) (Notifier, error) {
	return newCgroups("/sys/fs/cgroup", "/proc", pods)
}

func newCgroups(root, proc, pods string) (Notifier, error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return cgroupV2{root, proc, pods}, nil
	}
	memory := filepath.Join(root, "memory")
	if _, err := os.Stat(memory); err != nil {
		return nil, fmt.Errorf("eviction: find the memory cgroup: %w", err)
	}
	return cgroupV1{memory, pods}, nil
}

func dirOf(s Signal, root, pods string) (string, error) {
	switch {
	case s == MemoryAvailable:
		return root, nil
	case s == AllocatableMemoryAvailable && pods != "":
		return filepath.Join(root, pods), nil
	}
	return "", fmt.Errorf("no cgroup is about %s: %w", s, errors.ErrUnsupported)
}

type cgroupV1 struct{ root, pods string }

// Wait waits for an event of the cgroup.
func (c cgroupV1) Wait(ctx context.Context, s Signal, used int64) error {
	dir, err := dirOf(s, c.root, c.pods)
	if err != nil {
		return err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("make an eventfd: %w", err)
	}
	event := os.NewFile(uintptr(fd), "eventfd")
	defer func() { _ = event.Close() }() // the kernel forgets the threshold with it
	file := filepath.Join(dir, "memory.usage_in_bytes")
	if err := arm(dir, file, fd, used); err != nil {
		return fmt.Errorf("ask for a notice at %d bytes of %s: %w", used, dir, err)
	}
	if now, err := number(file); err != nil || now > used { // crossed before it was asked for
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = event.SetReadDeadline(time.Unix(1, 0)) })() // it is pollable
	if _, err := event.Read(make([]byte, 8)); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("wait for a notice of %s: %w", dir, err)
	}
	return nil
}

// arm has the kernel write to an eventfd when usage crosses a threshold.
func arm(dir, file string, event int, used int64) error {
	usage, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = usage.Close() }() // it was only read
	return write(filepath.Join(dir, "cgroup.event_control"), fmt.Sprintf("%d %d %d", event, usage.Fd(), used))
}

// write writes to a file of the kernel, which is not to be made.
func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func number(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
}

type cgroupV2 struct{ root, proc, pods string }

// Wait looks at usage, and waits for pressure.
func (c cgroupV2) Wait(ctx context.Context, s Signal, used int64) error {
	dir, err := dirOf(s, c.root, c.pods)
	if err != nil {
		return err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("make an eventfd: %w", err)
	}
	defer func() { _ = unix.Close(wake) }()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // there is room for it
	})
	defer func() {
		if !stop() {
			<-woken // before wake is closed
		}
	}()
	polled := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
	if s == MemoryAvailable { // who waits within the pods' cgroup may do so at a limit of its own
		if pressure := c.pressure(); pressure != nil {
			defer func() { _ = pressure.Close() }()
			polled = append(polled, unix.PollFd{Fd: int32(pressure.Fd()), Events: unix.POLLPRI})
		}
	}
	return c.watch(ctx, polled, used, func() (int64, error) { return c.usage(s, dir) })
}

// watch returns when usage is above used, or the second of those polled tells of pressure that the machine is the reason of. The
// first one says that ctx has ended.
func (c cgroupV2) watch(ctx context.Context, polled []unix.PollFd, used int64, usage func() (int64, error)) error {
	for {
		now, err := usage()
		if err != nil || now > used {
			return err
		}
		if _, err := unix.Poll(polled, int(pause(used-now).Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for pressure: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(polled) > 1 && polled[1].Revents&unix.POLLPRI != 0 && c.short() {
			return nil
		}
	}
}

// short says that little of the machine's memory is available, a quarter of it or less: whoever waits for memory while there is
// more waits at a limit of its own.
func (c cgroupV2) short() bool {
	b, err := os.ReadFile(filepath.Join(c.proc, "meminfo"))
	if err != nil {
		return true
	}
	figures := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			figures[key], _ = strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		}
	}
	return figures["MemAvailable"] <= figures["MemTotal"]/4
}

// pressure opens the file that tells of stalls; nil where there is none.
func (c cgroupV2) pressure() *os.File {
	f, err := os.OpenFile(filepath.Join(c.proc, "pressure/memory"), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	for _, trigger := range []string{stalled, stalledLong} {
		if _, err := f.WriteString(trigger); err == nil {
			return f
		}
	}
	_ = f.Close() // nothing came of it
	return nil
}

// usage is what is charged to a cgroup; the root has no figure of its own.
func (c cgroupV2) usage(s Signal, dir string) (int64, error) {
	if s != MemoryAvailable {
		return number(filepath.Join(dir, "memory.current"))
	}
	b, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	sum, found := int64(0), 0
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == "anon" || key == "file" {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory.stat: %w", err)
			}
			sum, found = sum+n, found+1
		}
	}
	if found < 2 {
		return 0, fmt.Errorf("memory.stat says nothing of anon and file: %w", fs.ErrInvalid)
	}
	return sum, nil
}
