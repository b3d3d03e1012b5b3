package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is the processor time a process has taken since it began, to the nanosecond and with all its threads, and the bytes of
// its memory that are resident now.
func Usage(pid int) (cpu time.Duration, rss int64, err error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil { // the clock of a process, see clock_getcpuclockid(3)
		return 0, 0, fmt.Errorf("read the clock of process %d: %w", pid, err)
	}
	path := fmt.Sprintf("/proc/%d/statm", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	f := strings.Fields(string(text))
	if len(f) < 2 {
		return 0, 0, fmt.Errorf("%s: %q", path, text)
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return time.Duration(t.Nano()), pages * int64(os.Getpagesize()), nil
}
