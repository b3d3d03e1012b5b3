package eviction_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// crowd is a node of many pods, each with two containers, a volume and a limit.
type crowd struct {
	pods    []*v1.Pod
	summary stats.Summary
}

func newCrowd(n int) *crowd {
	c := &crowd{}
	amount := func(v uint64) *uint64 { return &v }
	fs := func() *stats.FsStats {
		return &stats.FsStats{AvailableBytes: amount(1 << 40), CapacityBytes: amount(1 << 41), UsedBytes: amount(1 << 20), InodesFree: amount(1 << 20), Inodes: amount(1 << 21)}
	}
	memory := func(v uint64) *stats.MemoryStats {
		return &stats.MemoryStats{AvailableBytes: amount(1 << 40), WorkingSetBytes: amount(v), UsageBytes: amount(v)}
	}
	c.summary.Node = stats.NodeStats{Memory: memory(1 << 30), Fs: fs(), Runtime: &stats.RuntimeStats{ImageFs: fs(), ContainerFs: fs()}}
	limit := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}}
	size := resource.MustParse("1Gi")
	for i := range n {
		uid := fmt.Sprint("u", i)
		c.pods = append(c.pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "a", Resources: limit}, {Name: "b", Resources: limit}},
			Volumes:    []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}}},
		}})
		c.summary.Pods = append(c.summary.Pods, stats.PodStats{
			PodRef: stats.PodReference{UID: uid}, Memory: memory(uint64(i) << 20), EphemeralStorage: fs(),
			Containers:  []stats.ContainerStats{{Name: "a", Memory: memory(1), Rootfs: fs(), Logs: fs()}, {Name: "b", Memory: memory(1), Rootfs: fs(), Logs: fs()}},
			VolumeStats: []stats.VolumeStats{{Name: "v", FsStats: *fs()}},
		})
	}
	return c
}

func (c *crowd) Active() []*v1.Pod                                          { return c.pods }
func (c *crowd) Kill(context.Context, types.UID, runtime.Termination) error { return nil }
func (c *crowd) Settled(context.Context, types.UID) error                   { return nil }
func (c *crowd) Summary(context.Context, bool) (*stats.Summary, error)      { return &c.summary, nil }

func BenchmarkPassOver500Pods(b *testing.B) {
	for name, threshold := range map[string]string{"calm": "100Mi", "pressed": "100Ti"} {
		b.Run(name, func(b *testing.B) {
			c := newCrowd(500)
			thresholds, err := eviction.Parse(list{"memory.available": threshold, "nodefs.available": "10%", "imagefs.available": "15%"}, nil, nil, nil)
			if err != nil {
				b.Fatal(err)
			}
			m, err := eviction.New(eviction.Config{Source: eviction.FromSummary(c.Summary), Pods: c, Thresholds: thresholds})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := m.Check(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
