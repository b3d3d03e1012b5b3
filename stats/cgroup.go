package stats

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// memoryUse of a cgroup, in bytes.
type memoryUse struct {
	usage, workingSet, rss int64
	faults, majorFaults    int64
}

// groups reads files of cgroups below the root, for one look: there are hundreds of them. It is for one goroutine.
type groups struct {
	root fs.FS
	host bool // root is this host's
	v2   bool // the host has cgroups of version 2 alone; one that has both keeps its controllers in version 1
	buf  []byte
}

func newGroups(root fs.FS, host bool) *groups {
	_, err := fs.Stat(root, "sys/fs/cgroup/cgroup.controllers")
	return &groups{root: root, host: host, v2: err == nil, buf: make([]byte, 8<<10)}
}

// read reads a file. What it returns is good until the next.
func (g *groups) read(name string) ([]byte, error) {
	if !g.host {
		return fs.ReadFile(g.root, path.Clean(name))
	}
	var n int
	var err error
	g.buf, n, err = readHost("/"+name, g.buf)
	return g.buf[:n], err
}

// file is that of a controller in a cgroup.
func (g *groups) file(controller, group, name string) string {
	if g.v2 {
		return "sys/fs/cgroup/" + group + "/" + name
	}
	return "sys/fs/cgroup/" + controller + "/" + group + "/" + name
}

// number reads a file with one number. One that says max has none.
func (g *groups) number(controller, group, name string) (int64, error) {
	b, err := g.read(g.file(controller, group, name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// memory is what a cgroup and those below it use.
func (g *groups) memory(group string) (memoryUse, error) {
	b, err := g.read(g.file("memory", group, "memory.stat"))
	if err != nil {
		return memoryUse{}, err
	}
	s := parseMemory(b, g.v2)
	usage := s.anon + s.file // the root of version 2 has no figure of its own
	switch {
	case !g.v2:
		usage, err = g.number("memory", group, "memory.usage_in_bytes")
	case group != "":
		usage, err = g.number("memory", group, "memory.current")
	}
	return use(usage, s.inactive, s.anon, s.faults, s.majorFaults), err
}

// memoryStat is what is looked at of a memory.stat.
type memoryStat struct{ anon, file, inactive, faults, majorFaults int64 }

// parseMemory reads a memory.stat. Those of version 1 have figures of the cgroup alone, and with all below it, which are meant.
func parseMemory(b []byte, v2 bool) (s memoryStat) {
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, " ")
		var to *int64
		if v2 {
			to = s.v2(key)
		} else {
			to = s.v1(key)
		}
		if to == nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil && n >= 0 {
			*to = n
		}
	}
	return s
}

func (s *memoryStat) v1(key string) *int64 {
	switch key {
	case "total_rss":
		return &s.anon
	case "total_inactive_file":
		return &s.inactive
	case "total_pgfault":
		return &s.faults
	case "total_pgmajfault":
		return &s.majorFaults
	}
	return nil
}

func (s *memoryStat) v2(key string) *int64 {
	switch key {
	case "anon":
		return &s.anon
	case "file":
		return &s.file
	case "inactive_file":
		return &s.inactive
	case "pgfault":
		return &s.faults
	case "pgmajfault":
		return &s.majorFaults
	}
	return nil
}

// use takes what the kernel can drop at once out of the usage: the working set.
func use(usage, inactive, rss, faults, major int64) memoryUse {
	return memoryUse{usage: usage, workingSet: max(usage-inactive, 0), rss: rss, faults: faults, majorFaults: major}
}

// unlimited is what version 1 says of a cgroup without limit, or more.
const unlimited = 1 << 62

// memoryLimit of a cgroup; 0: it has none.
func (g *groups) memoryLimit(group string) int64 {
	name := "memory.limit_in_bytes"
	if g.v2 {
		name = "memory.max"
	}
	if n, err := g.number("memory", group, name); err == nil && n < unlimited {
		return n
	}
	return 0
}

// cpu is the CPU time of all processes of a cgroup, in nanoseconds; of the root since the start of the kernel.
func (g *groups) cpu(group string) (nanos int64, ok bool) {
	if g.v2 {
		b, err := g.read(g.file("", group, "cpu.stat"))
		usec, ok := parseFlat(string(b))["usage_usec"]
		return usec * 1000, err == nil && ok && usec < 1<<53
	}
	for _, controller := range []string{"cpuacct", "cpu,cpuacct"} {
		if nanos, err := g.number(controller, group, "cpuacct.usage"); err == nil {
			return nanos, nanos >= 0
		}
	}
	return 0, false
}

// threads are how many run in a cgroup and those below it.
func (g *groups) threads(group string) (int64, bool) {
	n, err := g.number("pids", group, "pids.current")
	return n, err == nil
}

// swap of a cgroup; nil: it is not known. Version 1 counts it only together with memory.
func (g *groups) swap(at metav1.Time, group string) *stats.SwapStats {
	if !g.v2 {
		return nil
	}
	used, err := g.number("", group, "memory.swap.current")
	if err != nil {
		return nil
	}
	out := &stats.SwapStats{Time: at, SwapUsageBytes: bytes(used)}
	if most, err := g.number("", group, "memory.swap.max"); err == nil {
		out.SwapAvailableBytes = bytes(most - used)
	}
	return out
}

// procs lists the processes of a container whose cgroup lies in that of its pod; ok is false when it does not.
func (g *groups) procs(group, container string) (list []byte, ok bool) {
	_, list, ok = g.container(group, container)
	return list, ok
}

// container is the cgroup of a container that lies in that of its pod, and its processes; ok is false when it does not.
func (g *groups) container(group, id string) (own string, procs []byte, ok bool) {
	for _, name := range []string{id, "cri-containerd-" + id + ".scope", "crio-" + id + ".scope"} {
		own = group + "/" + name
		if b, err := g.read(g.file("memory", own, "cgroup.procs")); err == nil {
			return own, b, true
		}
	}
	return "", nil, false
}

// throttling is in how many periods a cgroup could run, in how many of them it had to wait since it had used up its share, and
// how long in all.
type throttling struct{ periods, waited, nanos int64 }

// throttled says how a limit of CPU time slows a cgroup down; ok is false where nobody tells.
func (g *groups) throttled(group string) (t throttling, ok bool) {
	for _, controller := range []string{"cpu", "cpu,cpuacct"} {
		b, err := g.read(g.file(controller, group, "cpu.stat"))
		if err != nil {
			continue
		}
		s := parseFlat(string(b))
		t.periods, ok = s["nr_periods"]
		t.waited, t.nanos = s["nr_throttled"], s["throttled_time"]
		if micros, v2 := s["throttled_usec"]; v2 {
			t.nanos = micros * 1000
		}
		return t, ok
	}
	return t, false
}

// network is what the processes of a container sent and received, and all that share its network.
func (g *groups) network(group, container string) []stats.InterfaceStats {
	b, ok := g.procs(group, container)
	first, _, _ := strings.Cut(string(b), "\n")
	if _, err := strconv.ParseUint(first, 10, 32); !ok || err != nil { // it lies elsewhere, or runs no more
		return nil
	}
	b, err := g.read("proc/" + first + "/net/dev")
	if err != nil {
		return nil
	}
	return parseNetDev(string(b))
}

// own is the cgroup this process is in; empty: none of its own.
func (g *groups) own() string {
	b, err := g.read("proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (g.v2 && f[1] == "" || !g.v2 && slices.Contains(strings.Split(f[1], ","), "memory")) {
			return strings.Trim(f[2], "/")
		}
	}
	return ""
}

// pressure is how long processes of a cgroup waited for something: cpu, memory or io; nil: the kernel does not say. The root's
// is that of the host.
func (g *groups) pressure(group, of string) *stats.PSIStats {
	name := "proc/pressure/" + of
	if group != "" {
		if !g.v2 {
			return nil
		}
		name = g.file("", group, of+".pressure")
	}
	b, err := g.read(name)
	if err != nil {
		return nil
	}
	return parsePressure(string(b))
}

// parsePressure reads lines such as "some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459", the total in microseconds.
func parsePressure(text string) *stats.PSIStats {
	out := &stats.PSIStats{}
	found := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		d := psiData(f[1:])
		switch f[0] {
		case "some":
			out.Some, found = d, true
		case "full":
			out.Full, found = d, true
		}
	}
	if !found {
		return nil
	}
	return out
}

func psiData(fields []string) (d stats.PSIData) {
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		average, err := strconv.ParseFloat(value, 64)
		if err != nil || !(average >= 0) {
			continue
		}
		switch key {
		case "avg10":
			d.Avg10 = average
		case "avg60":
			d.Avg60 = average
		case "avg300":
			d.Avg300 = average
		case "total":
			if micros, err := strconv.ParseUint(value, 10, 64); err == nil && micros < 1<<53 {
				d.Total = micros * 1000
			}
		}
	}
	return d
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
