package eviction_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/eviction"
)

func TestFromSummary(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	n := func(v uint64) *uint64 { return &v }
	fs := func(available, capacity, used uint64) *stats.FsStats {
		return &stats.FsStats{Time: at, AvailableBytes: n(available), CapacityBytes: n(capacity), UsedBytes: n(used), InodesFree: n(available / 10), Inodes: n(capacity / 10), InodesUsed: n(used / 10)}
	}
	memory := &stats.MemoryStats{Time: at, AvailableBytes: n(30), WorkingSetBytes: n(70), UsageBytes: n(90)}
	most, running := int64(1000), int64(300)
	s := &stats.Summary{
		Node: stats.NodeStats{
			Memory: memory, Fs: fs(10, 100, 90), Runtime: &stats.RuntimeStats{ImageFs: fs(50, 500, 450), ContainerFs: fs(50, 500, 450)},
			Rlimit:           &stats.RlimitStats{Time: at, MaxPID: &most, NumOfRunningProcesses: &running},
			SystemContainers: []stats.ContainerStats{{Name: "kubelet", Memory: &stats.MemoryStats{}}, {Name: "pods", Memory: &stats.MemoryStats{Time: at, AvailableBytes: n(1), WorkingSetBytes: n(2)}}},
		},
		Pods: []stats.PodStats{
			{PodRef: stats.PodReference{UID: "nothing"}},
			{
				PodRef: stats.PodReference{UID: "u"}, Memory: memory, ProcessStats: &stats.ProcessStats{ProcessCount: n(7)}, EphemeralStorage: fs(0, 0, 60),
				Containers:  []stats.ContainerStats{{Name: "c", Memory: memory, Rootfs: fs(0, 0, 20), Logs: fs(0, 0, 10)}, {Name: "d"}},
				VolumeStats: []stats.VolumeStats{{Name: "v", FsStats: *fs(0, 0, 30)}},
			},
		},
	}
	var err error
	source := eviction.FromSummary(func(_ context.Context, fresh bool) (*stats.Summary, error) {
		if !fresh {
			t.Error("figures that are not fresh end nobody")
		}
		return s, err
	})
	got, _ := source.Observe(t.Context())
	want := eviction.Observation{
		Levels: map[eviction.Signal]eviction.Level{
			"memory.available": {30, 100, 90, at.Time}, "allocatableMemory.available": {1, 3, 0, at.Time},
			"nodefs.available": {10, 100, 0, at.Time}, "nodefs.inodesFree": {1, 10, 0, at.Time},
			"imagefs.available": {50, 500, 0, at.Time}, "imagefs.inodesFree": {5, 50, 0, at.Time},
			"containerfs.available": {50, 500, 0, at.Time}, "containerfs.inodesFree": {5, 50, 0, at.Time},
			"pid.available": {700, 1000, 0, at.Time},
		},
		Usage: map[types.UID]eviction.Usage{
			"nothing": {Containers: []eviction.ContainerUsage{}, Volumes: map[string]eviction.Amount{}},
			"u": {
				Memory: 70, Processes: 7, Storage: 60,
				Containers: []eviction.ContainerUsage{{Name: "c", Memory: 70, Rootfs: eviction.Amount{Bytes: 20, Inodes: 2}, Logs: eviction.Amount{Bytes: 10, Inodes: 1}}, {Name: "d"}},
				Volumes:    map[string]eviction.Amount{"v": {Bytes: 30, Inodes: 3}},
			},
		},
		Layout: eviction.ImagesApart,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	s.Node.Runtime.ContainerFs = fs(10, 100, 90)
	if o, _ := source.Observe(t.Context()); o.Layout != eviction.Split {
		t.Error(o.Layout)
	}
	s.Node.Runtime.ImageFs = fs(10, 100, 90)
	if o, _ := source.Observe(t.Context()); o.Layout != eviction.OneDisk {
		t.Error(o.Layout)
	}
	s.Node = stats.NodeStats{Memory: &stats.MemoryStats{AvailableBytes: n(1)}, Fs: &stats.FsStats{InodesFree: n(1)}}
	if o, _ := source.Observe(t.Context()); len(o.Levels) != 0 {
		t.Errorf("half a signal is none: %v", o.Levels)
	}
	s = nil
	if _, got := source.Observe(t.Context()); got == nil {
		t.Error("no summary and no error")
	}
	err = errors.New("no answer")
	if _, got := source.Observe(t.Context()); !errors.Is(got, err) {
		t.Error(got)
	}
}
