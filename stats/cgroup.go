package stats

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// memoryUse of a cgroup, in bytes.
type memoryUse struct {
	usage, workingSet, rss int64
	faults, majorFaults    int64
}

// unified says that the host has cgroups of version 2 alone; one that has both keeps its controllers in version 1.
func unified(root fs.FS) bool {
	_, err := fs.Stat(root, "sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// rootMemory is what all processes use together.
func rootMemory(root fs.FS) (memoryUse, error) {
	if unified(root) {
		b, err := fs.ReadFile(root, "sys/fs/cgroup/memory.stat")
		if err != nil {
			return memoryUse{}, err
		}
		s := parseFlat(string(b))
		// The root has no memory.current.
		return use(s["anon"]+s["file"], s["inactive_file"], s["anon"], s["pgfault"], s["pgmajfault"]), nil
	}
	b, err := fs.ReadFile(root, "sys/fs/cgroup/memory/memory.stat")
	if err != nil {
		return memoryUse{}, err
	}
	text := first(root, "sys/fs/cgroup/memory/memory.usage_in_bytes")
	usage, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return memoryUse{}, fmt.Errorf("memory.usage_in_bytes: %w", err)
	}
	s := parseFlat(string(b))
	return use(usage, s["total_inactive_file"], s["total_rss"], s["total_pgfault"], s["total_pgmajfault"]), nil
}

// use takes what the kernel can drop at once out of the usage: the working set.
func use(usage, inactive, rss, faults, major int64) memoryUse {
	return memoryUse{usage: usage, workingSet: max(usage-inactive, 0), rss: rss, faults: faults, majorFaults: major}
}

// rootCPU is the CPU time of all processes since the start of the kernel, in nanoseconds.
func rootCPU(root fs.FS) (nanos int64, ok bool) {
	if unified(root) {
		s := parseFlat(first(root, "sys/fs/cgroup/cpu.stat"))
		usec, ok := s["usage_usec"]
		return usec * 1000, ok && usec < 1<<53
	}
	text := first(root, "sys/fs/cgroup/cpuacct/cpuacct.usage", "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage")
	nanos, err := strconv.ParseInt(text, 10, 64)
	return nanos, err == nil && nanos >= 0
}

// parseFlat reads lines of a word and a number.
func parseFlat(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
			out[key] = n
		}
	}
	return out
}
