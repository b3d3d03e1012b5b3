package stats

import (
	"context"
	"io/fs"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// node reads the figures of the node itself. Only memory is a must: who guards the node cannot do without.
func (c *Collector) node(g *groups, now time.Time, fresh bool) (stats.NodeStats, error) {
	root, at := c.cfg.Root, metav1.NewTime(now)
	out := stats.NodeStats{NodeName: c.cfg.Node}
	memory, err := meminfo(root)
	if err != nil {
		return out, err
	}
	usage, err := g.memory("")
	huge := hugePages(root)
	if err != nil { // a kernel without the memory controller
		used := memory["MemTotal"] - memory["MemAvailable"]
		for size, pages := range huge {
			used -= size * pages
		}
		usage = memoryUse{usage: used, workingSet: used}
	}
	out.Memory = memoryStats(at, usage, memory["MemTotal"], huge)
	out.Memory.PSI = g.pressure("", "memory")
	out.Swap = &stats.SwapStats{
		Time: at, SwapAvailableBytes: bytes(memory["SwapFree"]), SwapUsageBytes: bytes(memory["SwapTotal"] - memory["SwapFree"]),
	}
	if nanos, ok := g.cpu(""); ok {
		out.CPU = &stats.CPUStats{
			Time: at, UsageCoreNanoSeconds: bytes(nanos), UsageNanoCores: c.rates.of("", now, now, nanos, fresh), PSI: g.pressure("", "cpu"),
		}
	}
	out.IO = ioStats(at, g.pressure("", "io"))
	if boot, ok := bootTime(root); ok {
		out.StartTime = metav1.NewTime(boot)
	}
	if b, err := fs.ReadFile(root, "proc/1/net/dev"); err == nil {
		out.Network = networkStats(at, parseNetDev(string(b)))
	}
	out.Rlimit = rlimit(at, root)
	out.SystemContainers = c.systemContainers(g, now, out.StartTime, fresh)
	disk, err := c.rootDisk()
	if err != nil {
		return out, err
	}
	out.Fs = fsStats(at, disk, disk.Capacity-disk.Free)
	return out, nil
}

// systemContainers are the cgroups that are not of single pods: that of all, and this process's own.
func (c *Collector) systemContainers(g *groups, now time.Time, boot metav1.Time, fresh bool) (out []stats.ContainerStats) {
	for _, s := range []struct{ name, group string }{
		{stats.SystemContainerPods, c.cfg.PodsCgroup}, {stats.SystemContainerKubelet, g.own()},
	} {
		if s.group == "" {
			continue
		}
		u, err := g.memory(s.group)
		if err != nil {
			continue
		}
		at := metav1.NewTime(now)
		one := stats.ContainerStats{Name: s.name, StartTime: boot, Memory: limitedMemory(at, u, g.memoryLimit(s.group)), Swap: g.swap(at, s.group)}
		one.Memory.PSI = g.pressure(s.group, "memory")
		if nanos, ok := g.cpu(s.group); ok {
			one.CPU = &stats.CPUStats{
				Time: at, UsageCoreNanoSeconds: bytes(nanos), UsageNanoCores: c.rates.of("cgroup "+s.name, now, now, nanos, fresh), PSI: g.pressure(s.group, "cpu"),
			}
		}
		one.IO = ioStats(at, g.pressure(s.group, "io"))
		out = append(out, one)
	}
	return out
}

// ioStats are absent where nothing is known.
func ioStats(at metav1.Time, p *stats.PSIStats) *stats.IOStats {
	if p == nil {
		return nil
	}
	return &stats.IOStats{Time: at, PSI: p}
}

// images fills in the file systems of images and of what containers write, and answers how full the latter is; nothing while an
// engine does not tell where they are.
func (c *Collector) images(ctx context.Context, now time.Time, node *stats.NodeStats) (DiskUsage, error) {
	used, err := c.cfg.Engine.ImageFS(ctx)
	images, written := placesOf(used)
	if err != nil || images == nil {
		return DiskUsage{}, err
	}
	at := metav1.NewTime(now)
	disk, info := c.place(at, images)
	node.Runtime = &stats.RuntimeStats{ImageFs: info, ContainerFs: info}
	if written != images {
		disk, node.Runtime.ContainerFs = c.place(at, written)
	}
	return disk, nil
}

// placesOf tells where images lie, and where containers write: at the same place, unless the engine says otherwise. nil: it says nothing.
func placesOf(all []runtime.FSUsage) (images, written *runtime.FSUsage) {
	for i := range all {
		switch f := &all[i]; {
		case f.Written && written == nil:
			written = f
		case !f.Written && images == nil:
			images = f
		}
	}
	if written == nil {
		written = images
	}
	return images, written
}

// place measures a file system of the engine's.
func (c *Collector) place(at metav1.Time, of *runtime.FSUsage) (DiskUsage, *stats.FsStats) {
	disk, err := c.cfg.Disk(of.Mountpoint)
	if err != nil { // it may be a place only the engine sees
		c.log.Debug("a file system of the container runtime cannot be measured", "err", err)
		return disk, &stats.FsStats{Time: at, UsedBytes: bytes(of.Used)}
	}
	info := fsStats(at, disk, of.Used)
	info.InodesUsed = nil // those of what lies there, which only some engines tell
	if of.Inodes > 0 {
		info.InodesUsed = bytes(of.Inodes)
	}
	return disk, info
}

func memoryStats(at metav1.Time, u memoryUse, total int64, huge map[int64]int64) *stats.MemoryStats {
	available := total - u.workingSet
	for size, pages := range huge { // set aside: nobody else gets them
		available -= size * pages
	}
	return &stats.MemoryStats{
		Time: at, AvailableBytes: bytes(available), UsageBytes: bytes(u.usage), WorkingSetBytes: bytes(u.workingSet),
		RSSBytes: bytes(u.rss), PageFaults: bytes(u.faults), MajorPageFaults: bytes(u.majorFaults),
	}
}

// limitedMemory is that of a cgroup. Without a limit nobody can say what is available.
func limitedMemory(at metav1.Time, u memoryUse, limit int64) *stats.MemoryStats {
	out := &stats.MemoryStats{
		Time: at, UsageBytes: bytes(u.usage), WorkingSetBytes: bytes(u.workingSet),
		RSSBytes: bytes(u.rss), PageFaults: bytes(u.faults), MajorPageFaults: bytes(u.majorFaults),
	}
	if limit > 0 {
		out.AvailableBytes = bytes(limit - u.workingSet)
	}
	return out
}

func fsStats(at metav1.Time, d DiskUsage, used int64) *stats.FsStats {
	out := &stats.FsStats{Time: at, AvailableBytes: bytes(d.Available), CapacityBytes: bytes(d.Capacity), UsedBytes: bytes(used)}
	if d.Inodes > 0 {
		out.Inodes, out.InodesFree, out.InodesUsed = bytes(d.Inodes), bytes(d.InodesFree), bytes(d.Inodes-d.InodesFree)
	}
	return out
}

// bytes is a figure as summaries have it; below zero is zero.
func bytes(n int64) *uint64 { return new(uint64(max(n, 0))) }

// bootTime is when the kernel started, by its clock.
func bootTime(root fs.FS) (time.Time, bool) {
	for line := range strings.Lines(first(root, "proc/stat")) {
		if text, ok := strings.CutPrefix(line, "btime "); ok {
			sec, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return time.Unix(sec, 0), err == nil
		}
	}
	return time.Time{}, false
}

// rlimit is how many threads there are and may be.
func rlimit(at metav1.Time, root fs.FS) *stats.RlimitStats {
	out := &stats.RlimitStats{Time: at}
	for _, name := range []string{"proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"} {
		if n, err := strconv.ParseInt(first(root, name), 10, 64); err == nil && (out.MaxPID == nil || n < *out.MaxPID) {
			out.MaxPID = &n
		}
	}
	if n, ok := tasks(first(root, "proc/loadavg")); ok {
		out.NumOfRunningProcesses = &n
	}
	return out
}

// tasks reads the number of threads from /proc/loadavg: "1.36 3.49 4.53 2/3518 3715089".
func tasks(loadavg string) (int64, bool) {
	f := strings.Fields(loadavg)
	if len(f) < 4 {
		return 0, false
	}
	_, all, ok := strings.Cut(f[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	return n, ok && err == nil && n >= 0
}

// networkStats puts the figures of eth0 in front, as summaries have it.
func networkStats(at metav1.Time, all []stats.InterfaceStats) *stats.NetworkStats {
	out := &stats.NetworkStats{Time: at, Interfaces: all}
	for _, i := range all {
		if i.Name == "eth0" {
			out.InterfaceStats = i
		}
	}
	return out
}

// parseNetDev reads /proc/net/dev without interfaces that belong to pods or lead nowhere.
func parseNetDev(text string) (out []stats.InterfaceStats) {
	for line := range strings.Lines(text) {
		name, figures, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		f := strings.Fields(figures)
		if !ok || len(f) < 11 || name == "" || local(name) {
			continue
		}
		n := make([]*uint64, 11)
		for i := range n {
			if v, err := strconv.ParseUint(f[i], 10, 64); err == nil {
				n[i] = &v
			}
		}
		out = append(out, stats.InterfaceStats{Name: name, RxBytes: n[0], RxErrors: n[2], TxBytes: n[8], TxErrors: n[10]})
	}
	return out
}

func local(name string) bool {
	for _, prefix := range []string{"lo", "veth", "docker", "nerdctl"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
