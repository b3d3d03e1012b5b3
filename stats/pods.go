package stats

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// pods are the figures of all pods of which a container runs.
func (c *Collector) pods(ctx context.Context, now time.Time, disk DiskUsage, fresh bool) ([]stats.PodStats, error) {
	out := []stats.PodStats{}
	if c.cfg.Pods == nil {
		return out, nil
	}
	list, err := c.cfg.Engine.ContainerStats(ctx, runtime.Filter{OnlyAlive: true})
	if err != nil {
		return nil, err
	}
	used := map[string]runtime.Usage{}
	for _, u := range list {
		used[u.Container] = u
	}
	for _, pod := range c.cfg.Pods() {
		p := stats.PodStats{
			PodRef:     stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
			Containers: []stats.ContainerStats{},
		}
		if pod.Status.StartTime != nil {
			p.StartTime = *pod.Status.StartTime
		}
		for _, s := range containers(&pod.Status) {
			_, id, _ := strings.Cut(s.ContainerID, "://")
			if u, ok := used[id]; ok && s.State.Running != nil {
				rate := c.rates.of(id, now, u.At, u.CPUNanos, fresh)
				p.Containers = append(p.Containers, container(s, u, rate, disk))
			}
		}
		if len(p.Containers) == 0 {
			continue
		}
		p.CPU, p.Memory = sum(metav1.NewTime(now), p.Containers)
		if c.cfg.Volumes != nil {
			p.VolumeStats = c.cfg.Volumes(string(pod.UID))
		}
		out = append(out, p)
	}
	return out, nil
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
	if disk.Capacity > 0 {
		out.Rootfs.CapacityBytes, out.Rootfs.AvailableBytes = bytes(disk.Capacity), bytes(disk.Available)
	}
	return out
}

// sum is what the containers of a pod use together. A rate is known when that of one container is.
func sum(at metav1.Time, all []stats.ContainerStats) (*stats.CPUStats, *stats.MemoryStats) {
	cpu := &stats.CPUStats{Time: at, UsageCoreNanoSeconds: new(uint64)}
	memory := &stats.MemoryStats{Time: at, WorkingSetBytes: new(uint64)}
	for _, c := range all {
		*cpu.UsageCoreNanoSeconds += *c.CPU.UsageCoreNanoSeconds
		*memory.WorkingSetBytes += *c.Memory.WorkingSetBytes
		if c.CPU.UsageNanoCores != nil {
			if cpu.UsageNanoCores == nil {
				cpu.UsageNanoCores = new(uint64)
			}
			*cpu.UsageNanoCores += *c.CPU.UsageNanoCores
		}
	}
	return cpu, memory
}
