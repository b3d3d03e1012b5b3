package stats

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// pods are the figures of all pods of which a container runs, or of all there are, without those containers that a glance need
// not look at.
func (c *Collector) pods(ctx context.Context, g *groups, now time.Time, disk DiskUsage, node *stats.FsStats, d detail) ([]stats.PodStats, error) {
	out := []stats.PodStats{}
	if c.cfg.Pods == nil {
		return out, nil
	}
	pods := c.cfg.Pods()
	ask := !d.glance || c.mustAsk(now, pods)
	used := map[string]runtime.Usage{}
	if ask {
		list, err := c.cfg.Engine.ContainerStats(ctx, runtime.Filter{OnlyAlive: true})
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.asked = now
		c.mu.Unlock()
		for _, u := range list {
			used[u.Container] = u
		}
	}
	for _, pod := range pods {
		p := stats.PodStats{
			PodRef:     stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
			Containers: []stats.ContainerStats{},
		}
		if pod.Status.StartTime != nil {
			p.StartTime = *pod.Status.StartTime
		}
		runs := false
		for _, s := range containers(&pod.Status) {
			if s.State.Running == nil {
				continue
			}
			runs = true
			_, id, _ := strings.Cut(s.ContainerID, "://")
			if u, ok := used[id]; ok {
				rate := c.rates.of(id, now, u.At, u.CPUNanos, d.fresh)
				p.Containers = append(p.Containers, container(s, u, rate, disk))
			}
		}
		switch {
		case len(p.Containers) > 0:
			p.CPU, p.Memory, p.Swap = sum(metav1.NewTime(now), p.Containers)
			c.cgroupOf(g, now, pod, &p, d)
		case d.all && d.groups && c.groupAlone(g, now, pod, &p): // it says of those that begin just now, too
		case ask && runs, !d.all && !runs:
			continue
		}
		if r, ok := c.room(pod.UID); ok {
			r.fill(&p, node)
		}
		if c.cfg.Volumes != nil {
			p.VolumeStats = append(p.VolumeStats, c.cfg.Volumes(string(pod.UID))...)
		}
		out = append(out, p)
	}
	return out, nil
}

// unasked are the figures of all pods without a word of the engine.
func (c *Collector) unasked(g *groups, now time.Time, node *stats.FsStats) []stats.PodStats {
	out := []stats.PodStats{}
	if c.cfg.Pods == nil {
		return out
	}
	for _, pod := range c.cfg.Pods() {
		p := stats.PodStats{
			PodRef:     stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
			Containers: []stats.ContainerStats{},
		}
		c.groupAlone(g, now, pod, &p)
		if r, ok := c.room(pod.UID); ok {
			r.fill(&p, node)
		}
		out = append(out, p)
	}
	return out
}

// groupAlone takes memory and threads from a pod's cgroup, where that is all that is known of it; false where it has none, or
// its containers lie elsewhere.
func (c *Collector) groupAlone(g *groups, now time.Time, pod *v1.Pod, p *stats.PodStats) bool {
	if c.cfg.Cgroup == nil {
		return false
	}
	path := c.cfg.Cgroup(pod)
	if path == "" {
		return false
	}
	u, err := g.memory(path)
	if err != nil || !holds(g, path, pod) {
		return false
	}
	p.Memory = limitedMemory(metav1.NewTime(now), u, 0)
	if n, ok := g.threads(path); ok {
		p.ProcessStats = &stats.ProcessStats{ProcessCount: bytes(n)}
	}
	return true
}

// mustAsk says whether a glance has to ask the engine about containers.
func (c *Collector) mustAsk(now time.Time, pods []*v1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked.IsZero() || now.Sub(c.asked) >= measureEvery || slices.ContainsFunc(pods, limited)
}

// limited says that a container of a pod may use so much of the disk and no more.
func limited(p *v1.Pod) bool {
	is := func(c v1.Container) bool { _, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; return ok }
	return slices.ContainsFunc(p.Spec.Containers, is) || slices.ContainsFunc(p.Spec.InitContainers, is)
}

// cgroupOf takes from a pod's cgroup what that knows better than its containers: memory of volumes and of those that are gone,
// CPU time, and threads. Where the cgroup says less, containers may lie elsewhere: whoever started them gave the pod none.
func (c *Collector) cgroupOf(g *groups, now time.Time, pod *v1.Pod, p *stats.PodStats, d detail) {
	if c.cfg.Cgroup == nil || !d.groups {
		return
	}
	path := c.cfg.Cgroup(pod)
	if path == "" {
		return
	}
	at := metav1.NewTime(now)
	c.timeOf(g, now, path, pod, p, d)
	u, err := g.memory(path)
	less := p.Memory.WorkingSetBytes != nil && uint64(u.workingSet) < *p.Memory.WorkingSetBytes
	if err != nil || less && !holds(g, path, pod) {
		return
	}
	p.Memory = limitedMemory(at, u, 0)
	if n, ok := g.threads(path); ok {
		p.ProcessStats = &stats.ProcessStats{ProcessCount: bytes(n)}
	}
	if d.rest {
		restOf(g, at, path, pod, p)
	}
}

// timeOf takes the CPU time of a pod from its cgroup. That of its containers together falls whenever one of them begins anew,
// and who makes rates of it takes all of them to have begun anew. A cgroup that says less is not where they lie.
func (c *Collector) timeOf(g *groups, now time.Time, path string, pod *v1.Pod, p *stats.PodStats, d detail) {
	nanos, ok := g.cpu(path)
	if !ok || uint64(nanos) < *p.CPU.UsageCoreNanoSeconds {
		return
	}
	p.CPU.UsageCoreNanoSeconds = bytes(nanos)
	if rate := c.rates.of("pod "+string(pod.UID), now, now, nanos, d.fresh); rate != nil {
		p.CPU.UsageNanoCores = rate
	}
}

// holds says that all running containers of a pod lie in a cgroup.
func holds(g *groups, path string, pod *v1.Pod) bool {
	for _, s := range containers(&pod.Status) {
		if s.State.Running == nil {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		if _, ok := g.procs(path, id); id == "" || !ok {
			return false
		}
	}
	return true
}

// restOf adds what else a pod's cgroup says.
func restOf(g *groups, at metav1.Time, path string, pod *v1.Pod, p *stats.PodStats) {
	if limit := g.memoryLimit(path); limit > 0 {
		p.Memory.AvailableBytes = bytes(limit - int64(*p.Memory.WorkingSetBytes))
	}
	if s := g.swap(at, path); s != nil {
		p.Swap = s
	}
	p.Memory.PSI, p.CPU.PSI, p.IO = g.pressure(path, "memory"), g.pressure(path, "cpu"), ioStats(at, g.pressure(path, "io"))
	if pod.Spec.HostNetwork {
		return
	}
	for _, s := range containers(&pod.Status) {
		if _, id, _ := strings.Cut(s.ContainerID, "://"); id != "" && s.State.Running != nil {
			if all := g.network(path, id); len(all) > 0 {
				p.Network = networkStats(at, all)
			}
			return
		}
	}
}

// fill adds what files of a pod take up.
func (r room) fill(p *stats.PodStats, node *stats.FsStats) {
	p.VolumeStats = append(p.VolumeStats, r.volumes...)
	at := metav1.NewTime(r.at)
	on := func(a amount) *stats.FsStats {
		return &stats.FsStats{
			Time: at, AvailableBytes: node.AvailableBytes, CapacityBytes: node.CapacityBytes, UsedBytes: bytes(a.bytes),
			InodesFree: node.InodesFree, Inodes: node.Inodes, InodesUsed: bytes(a.inodes),
		}
	}
	total := r.other.plus(r.local)
	for _, logs := range r.logs { // also of containers that do not run
		total = total.plus(logs)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		c.Logs = on(r.logs[c.Name])
		if c.Rootfs != nil {
			total = total.plus(amount{int64(*c.Rootfs.UsedBytes), 0})
			if c.Rootfs.InodesUsed != nil {
				total.inodes += int64(*c.Rootfs.InodesUsed)
			}
		}
	}
	p.EphemeralStorage = on(total)
}

func containers(s *v1.PodStatus) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	out = append(out, s.InitContainerStatuses...)
	out = append(out, s.ContainerStatuses...)
	return append(out, s.EphemeralContainerStatuses...)
}

func container(s v1.ContainerStatus, u runtime.Usage, rate *uint64, disk DiskUsage) stats.ContainerStats {
	at := metav1.NewTime(u.At)
	out := stats.ContainerStats{
		Name: s.Name, StartTime: s.State.Running.StartedAt,
		CPU:    &stats.CPUStats{Time: at, UsageCoreNanoSeconds: bytes(u.CPUNanos), UsageNanoCores: rate},
		Memory: &stats.MemoryStats{Time: at, WorkingSetBytes: bytes(u.WorkingSet)},
		Rootfs: &stats.FsStats{Time: at, UsedBytes: bytes(u.RootFS)},
	}
	if r := s.Resources; r != nil && !r.Limits.Memory().IsZero() {
		out.Memory.AvailableBytes = bytes(r.Limits.Memory().Value() - u.WorkingSet)
	}
	if u.Memory > 0 { // the engine tells more than the working set
		out.Memory.UsageBytes, out.Memory.RSSBytes = bytes(u.Memory), bytes(u.RSS)
		out.Memory.PageFaults, out.Memory.MajorPageFaults = bytes(u.PageFaults), bytes(u.MajorPageFaults)
	}
	if u.SwapKnown {
		out.Swap = &stats.SwapStats{Time: at, SwapUsageBytes: bytes(u.Swap), SwapAvailableBytes: bytes(u.SwapAvailable)}
	}
	if u.RootFSInodes > 0 {
		out.Rootfs.InodesUsed = bytes(u.RootFSInodes)
	}
	if disk.Capacity > 0 {
		out.Rootfs.CapacityBytes, out.Rootfs.AvailableBytes = bytes(disk.Capacity), bytes(disk.Available)
	}
	return out
}

// sum is what the containers of a pod use together. A figure is known when that of one container is.
func sum(at metav1.Time, all []stats.ContainerStats) (cpu *stats.CPUStats, memory *stats.MemoryStats, swap *stats.SwapStats) {
	cpu = &stats.CPUStats{Time: at}
	memory = &stats.MemoryStats{Time: at}
	for _, c := range all {
		add(&cpu.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
		add(&cpu.UsageNanoCores, c.CPU.UsageNanoCores)
		add(&memory.WorkingSetBytes, c.Memory.WorkingSetBytes)
		add(&memory.UsageBytes, c.Memory.UsageBytes)
		add(&memory.RSSBytes, c.Memory.RSSBytes)
		add(&memory.PageFaults, c.Memory.PageFaults)
		add(&memory.MajorPageFaults, c.Memory.MajorPageFaults)
		if c.Swap != nil {
			if swap == nil {
				swap = &stats.SwapStats{Time: at}
			}
			add(&swap.SwapUsageBytes, c.Swap.SwapUsageBytes)
			add(&swap.SwapAvailableBytes, c.Swap.SwapAvailableBytes)
		}
	}
	return cpu, memory, swap
}

func add(to **uint64, n *uint64) {
	switch {
	case n == nil:
	case *to == nil:
		*to = new(*n)
	default:
		**to += *n
	}
}

// withoutSwap says of all pods that they swap nothing, on a machine that cannot: engines and cgroups of version 1 do not tell.
func withoutSwap(s *stats.Summary) {
	node := s.Node.Swap
	if node == nil || *node.SwapUsageBytes+*node.SwapAvailableBytes > 0 {
		return
	}
	nothing := &stats.SwapStats{Time: node.Time, SwapUsageBytes: bytes(0), SwapAvailableBytes: bytes(0)}
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Swap == nil {
			p.Swap = nothing
		}
		for j := range p.Containers {
			if p.Containers[j].Swap == nil {
				p.Containers[j].Swap = nothing
			}
		}
	}
}
