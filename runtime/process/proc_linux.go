package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supported says that New gives engines here.
const supported = true

// ownProgram leads to this program even when its file has been replaced or removed.
const ownProgram = "/proc/self/exe"

// What a shim is asked by signals.
const (
	askSignal    = syscall.SIGTERM // pass the stop signal on to the container
	killSignal   = syscall.SIGUSR2 // kill it
	reopenSignal = syscall.SIGUSR1 // open its log file anew
)

// bootID changes each time the machine starts. Without /proc it is empty, and no process is ever found alive.
var bootID = sync.OnceValue(func() string { //nolint:gochecknoglobals // it cannot change while the program runs
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

// stat is what /proc tells of a process.
type stat struct {
	pid, parent int
	state       byte
	start       uint64 // clock ticks since the boot
	cpu         uint64 // clock ticks, of ended and waited for children too
	pages       int64  // in memory
}

// readStat reads /proc/<pid>/stat.
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads the line of /proc/<pid>/stat. The name in it may hold anything, brackets and line ends too.
func parseStat(b []byte) (s stat, err error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return s, fmt.Errorf("process status %.100q has no name", b)
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 22 || len(f[0]) != 1 {
		return s, fmt.Errorf("process status %.100q is short", b)
	}
	number := func(s string) (n uint64) {
		n, e := strconv.ParseUint(s, 10, 64)
		err = cmp.Or(err, e)
		return n
	}
	s.pid, s.parent, s.state = int(number(strings.TrimSpace(string(b[:open])))), int(number(f[1])), f[0][0]
	for _, ticks := range f[11:15] { // user, system, and those of children
		n, e := strconv.ParseInt(ticks, 10, 64) // a kernel may count backwards
		err = cmp.Or(err, e)
		s.cpu += uint64(max(n, 0))
	}
	s.start, s.pages = number(f[19]), int64(number(f[21]))
	return s, err
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

// identify gives a process that runs its lasting name.
func identify(pid int) (ident, error) {
	s, err := readStat(pid)
	return ident{PID: pid, Start: s.start, Boot: bootID()}, err
}

// alive says that this very process still runs.
func (i ident) alive() bool {
	if i.PID <= 0 || i.Boot != bootID() {
		return false
	}
	s, err := readStat(i.PID)
	return err == nil && s.start == i.Start && !s.dead()
}

// signal sends a signal to this very process. One that is gone needs none.
func (i ident) signal(sig os.Signal) error {
	if i.PID <= 0 {
		return nil
	}
	p, err := os.FindProcess(i.PID) // holds on to the process, whoever gets its pid later
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	if !i.alive() {
		return nil
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", i.PID, err)
	}
	return nil
}

// markEnv names the variable by which processes of a container are known, wherever they have gone.
const markEnv = "KUBELETKIT_CONTAINER"

// processes are all there are.
func processes() []stat {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []stat
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// mark is the container that a process was made for; empty: none, or it is another user's.
func mark(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return ""
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if id, ok := bytes.CutPrefix(v, []byte(markEnv+"=")); ok {
			return string(id)
		}
	}
	return ""
}

// members picks the processes of a container: those that carry its mark, and what descends from its shim. The shim, 0 for
// none, is not one.
func members(all []stat, shim int, marked func(pid int) bool) (out []stat) {
	parents := make(map[int]int, len(all))
	for _, s := range all {
		parents[s.pid] = s.parent
	}
	descends := func(pid int) bool {
		for range all { // a list that is not of one instant may have circles
			if pid = parents[pid]; pid == 0 {
				return false
			} else if pid == shim {
				return true
			}
		}
		return false
	}
	for _, s := range all {
		if s.pid != shim && !s.dead() && (shim != 0 && descends(s.pid) || marked(s.pid)) {
			out = append(out, s)
		}
	}
	return out
}

// of are the living processes of a container.
func of(id string, shim int) []stat {
	return members(processes(), shim, func(pid int) bool { return mark(pid) == id })
}

// sweepPatience is how long killed processes have to go. One that hangs in the kernel does not.
const sweepPatience = 20 * time.Second

// sweep kills what a container without a shim left behind.
func sweep(id string) { killAll(id, 0, func() {}) }

// killAll kills all processes of a container and those they make meanwhile, and returns when they are gone.
func killAll(id string, shim int, reap func()) {
	for end := time.Now().Add(sweepPatience); ; time.Sleep(5 * time.Millisecond) {
		reap()
		left := of(id, shim)
		if len(left) == 0 || time.Now().After(end) {
			return
		}
		for _, s := range left {
			_ = ident{s.pid, s.start, bootID()}.signal(os.Kill) // who is not ours to kill is not ours
		}
	}
}

// signalNamed is the signal of that name or number; empty is SIGTERM.
func signalNamed(name string) (syscall.Signal, error) {
	if name == "" {
		return syscall.SIGTERM, nil
	}
	if n, err := strconv.ParseUint(name, 10, 8); err == nil && n >= 1 && n <= 64 {
		return syscall.Signal(n), nil
	}
	full := strings.ToUpper(name)
	if !strings.HasPrefix(full, "SIG") {
		full = "SIG" + full
	}
	if s := unix.SignalNum(full); s != 0 {
		return s, nil
	}
	for base, from := range map[string]int{"SIGRTMIN": 34, "SIGRTMAX": 64} {
		rest, ok := strings.CutPrefix(full, base)
		n, err := strconv.Atoi(rest)
		if ok && (rest == "" || err == nil) && from+n >= 34 && from+n <= 64 {
			return syscall.Signal(from + n), nil
		}
	}
	return 0, fmt.Errorf("no signal is named %q", name)
}

// tryLock takes the lock of a file for as long as that is open; ok is false when another one has it.
func tryLock(f *os.File) (ok bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}
