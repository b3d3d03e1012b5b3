package eviction

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// FromSummary makes a Source of summaries in the form of the kubelet's /stats/summary, asked for fresh. Whether images lie
// apart it tells by capacities; a Config.Layout that asks the file systems is better.
func FromSummary(f func(ctx context.Context, fresh bool) (*stats.Summary, error)) Source {
	return summaries(f)
}

type summaries func(ctx context.Context, fresh bool) (*stats.Summary, error)

// Observe asks for a summary.
func (f summaries) Observe(ctx context.Context) (Observation, error) {
	s, err := f(ctx, true)
	if err != nil {
		return Observation{}, err
	}
	if s == nil {
		return Observation{}, errors.New("there is no summary")
	}
	return read(s), nil
}

func read(s *stats.Summary) Observation {
	o := Observation{Levels: map[Signal]Level{}, Usage: make(map[types.UID]Usage, len(s.Pods))}
	o.memory(MemoryAvailable, s.Node.Memory)
	for i := range s.Node.SystemContainers {
		if c := &s.Node.SystemContainers[i]; c.Name == stats.SystemContainerPods {
			o.memory(AllocatableMemoryAvailable, c.Memory)
		}
	}
	o.disk(NodeFsAvailable, NodeFsInodesFree, s.Node.Fs)
	if r := s.Node.Runtime; r != nil {
		o.disk(ImageFsAvailable, ImageFsInodesFree, r.ImageFs)
		o.disk(ContainerFsAvailable, ContainerFsInodesFree, r.ContainerFs)
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		o.Levels[PIDAvailable] = Level{Available: *r.MaxPID - *r.NumOfRunningProcesses, Capacity: *r.MaxPID, At: r.Time.Time}
	}
	o.Layout = guess(o.Levels)
	for i := range s.Pods {
		o.Usage[types.UID(s.Pods[i].PodRef.UID)] = usageOf(&s.Pods[i])
	}
	return o
}

func (o *Observation) memory(s Signal, m *stats.MemoryStats) {
	if m == nil || m.AvailableBytes == nil || m.WorkingSetBytes == nil {
		return
	}
	o.Levels[s] = Level{
		Available: int64(*m.AvailableBytes), Capacity: int64(*m.AvailableBytes + *m.WorkingSetBytes), Used: value(m.UsageBytes), At: m.Time.Time,
	}
}

func (o *Observation) disk(bytes, inodes Signal, fs *stats.FsStats) {
	if fs == nil {
		return
	}
	o.level(bytes, fs.AvailableBytes, fs.CapacityBytes, fs.Time)
	o.level(inodes, fs.InodesFree, fs.Inodes, fs.Time)
}

func (o *Observation) level(s Signal, available, capacity *uint64, at metav1.Time) {
	if available != nil && capacity != nil {
		o.Levels[s] = Level{Available: int64(*available), Capacity: int64(*capacity), At: at.Time}
	}
}

// guess takes file systems of one size for one.
func guess(l map[Signal]Level) Layout {
	same := func(a, b Signal) bool { return l[a].Capacity == l[b].Capacity }
	_, known := l[ImageFsAvailable]
	switch {
	case !known || same(NodeFsAvailable, ImageFsAvailable) && same(NodeFsInodesFree, ImageFsInodesFree):
		return OneDisk
	case same(ContainerFsAvailable, ImageFsAvailable) && same(ContainerFsInodesFree, ImageFsInodesFree):
		return ImagesApart
	}
	return Split
}

func usageOf(p *stats.PodStats) Usage {
	u := Usage{Containers: make([]ContainerUsage, 0, len(p.Containers)), Volumes: make(map[string]Amount, len(p.VolumeStats))}
	if p.Memory != nil {
		u.Memory = value(p.Memory.WorkingSetBytes)
	}
	if p.ProcessStats != nil {
		u.Processes = value(p.ProcessStats.ProcessCount)
	}
	if p.EphemeralStorage != nil {
		u.Storage = value(p.EphemeralStorage.UsedBytes)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		now := ContainerUsage{Name: c.Name, Rootfs: amount(c.Rootfs), Logs: amount(c.Logs)}
		if c.Memory != nil {
			now.Memory = value(c.Memory.WorkingSetBytes)
		}
		u.Containers = append(u.Containers, now)
	}
	for i := range p.VolumeStats {
		u.Volumes[p.VolumeStats[i].Name] = amount(&p.VolumeStats[i].FsStats)
	}
	return u
}

func amount(fs *stats.FsStats) Amount {
	if fs == nil {
		return Amount{}
	}
	return Amount{value(fs.UsedBytes), value(fs.InodesUsed)}
}

func value(p *uint64) int64 {
	if p == nil {
		return 0
	}
	return int64(*p)
}
