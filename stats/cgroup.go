package stats

import (
	"fmt"
	"io/fs"
	"path"
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

// unlimited is what version 1 says of a cgroup without limit, or more.
const unlimited = 1 << 62

// cgroupMemory is what a cgroup below the root uses, and its limit; 0: it has none.
func cgroupMemory(root fs.FS, group string) (u memoryUse, limit int64, err error) {
	dir, usage, most := "sys/fs/cgroup/memory/"+group, "memory.usage_in_bytes", "memory.limit_in_bytes"
	inactive, rss, faults, major := "total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault"
	if unified(root) {
		dir, usage, most = "sys/fs/cgroup/"+group, "memory.current", "memory.max"
		inactive, rss, faults, major = "inactive_file", "anon", "pgfault", "pgmajfault"
	}
	b, err := fs.ReadFile(root, path.Clean(dir+"/memory.stat"))
	if err != nil {
		return u, 0, err
	}
	n, err := strconv.ParseInt(first(root, path.Clean(dir+"/"+usage)), 10, 64)
	if err != nil {
		return u, 0, fmt.Errorf("%s: %w", usage, err)
	}
	if l, err := strconv.ParseInt(first(root, path.Clean(dir+"/"+most)), 10, 64); err == nil && l < unlimited {
		limit = l // otherwise it is "max"
	}
	s := parseFlat(string(b))
	return use(n, s[inactive], s[rss], s[faults], s[major]), limit, nil
}

// cgroupThreads is how many threads run in a cgroup below the root and those below it.
func cgroupThreads(root fs.FS, group string) (int64, bool) {
	dir := "sys/fs/cgroup/pids/"
	if unified(root) {
		dir = "sys/fs/cgroup/"
	}
	n, err := strconv.ParseInt(first(root, path.Clean(dir+group+"/pids.current")), 10, 64)
	return n, err == nil
}
