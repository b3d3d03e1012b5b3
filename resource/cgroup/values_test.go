package cgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestPodValues(t *testing.T) {
	none := map[string]int64{}
	level := func(container, pod string) *v1.Pod {
		p := podOf("u", container)
		p.Spec.Resources = new(sizes(pod))
		return p
	}
	for _, tt := range []struct {
		rule string
		pod  *v1.Pod
		cfg  Config
		want values
	}{
		{"guaranteed", podOf("u", guaranteed, guaranteed), Config{}, values{2048, 200_000, 100_000, 2 << 20, unlimited, none, &keep{}, 0}},
		{"burstable with all limits", podOf("u", "cpu=100m cpu<200m memory<1Mi", "cpu=100m cpu<200m memory<2Mi"), Config{}, values{204, 40_000, 100_000, 3 << 20, unlimited, none, &keep{}, 0}},
		{"one container without a CPU limit", podOf("u", "cpu=100m cpu<200m memory<1Mi", "cpu=100m memory<2Mi"), Config{}, values{204, unlimited, 100_000, 3 << 20, unlimited, none, &keep{}, 0}},
		{"one container without a memory limit", podOf("u", "cpu=100m cpu<200m memory<1Mi", "cpu<100m"), Config{}, values{102, 30_000, 100_000, unlimited, unlimited, none, &keep{}, 0}},
		{"limits of the pod as a whole", func() *v1.Pod {
			p := podOf("u", "cpu=1")
			p.Spec.Resources = new(sizes("cpu=2 cpu<3 memory<1Mi"))
			return p
		}(), Config{}, values{2048, 300_000, 100_000, 1 << 20, unlimited, none, &keep{}, 0}},
		{"slowed down as a whole", level("memory=1Mi", "memory=2Mi memory<4Mi"), Config{Throttle: 0.5}, values{2, unlimited, 100_000, 4 << 20, unlimited, none, &keep{}, 3 << 20}},
		{"what a sandbox takes counts", func() *v1.Pod {
			p := level("memory=1Mi", "memory=2Mi memory<4Mi")
			p.Spec.Overhead = sizes("memory=1Mi").Requests
			return p
		}(), Config{Throttle: 0.5}, values{2, unlimited, 100_000, 5 << 20, unlimited, none, &keep{}, 4 << 20}},
		{"or by the limits of all containers", level("memory=1Mi memory<3Mi", "cpu<1"), Config{Throttle: 0.5}, values{2, 100_000, 100_000, 3 << 20, unlimited, none, &keep{}, 2 << 20}},
		{"one container without a limit, and the pod has none", level("memory=1Mi", "cpu<1"), Config{Throttle: 0.5}, values{2, 100_000, 100_000, unlimited, unlimited, none, &keep{}, 0}},
		{"a pod that asks for its limit is not slowed down", level("", "memory=4Mi memory<4Mi"), Config{Throttle: 0.5}, values{2, unlimited, 100_000, 4 << 20, unlimited, none, &keep{}, unlimited}},
		{"nor one of containers alone", podOf("u", "memory=1Mi memory<3Mi"), Config{Throttle: 0.5}, values{2, unlimited, 100_000, 3 << 20, unlimited, none, &keep{}, 0}},
		{"best effort", podOf("u", ""), Config{}, values{2, unlimited, 100_000, unlimited, unlimited, none, &keep{}, 0}},
		{"the class that was told counts", func() *v1.Pod {
			p := podOf("u", guaranteed)
			p.Status.QOSClass = v1.PodQOSBestEffort
			return p
		}(), Config{}, values{2, unlimited, 100_000, unlimited, unlimited, none, &keep{}, 0}},
		{"processes", podOf("u", ""), Config{PodPids: 100}, values{2, unlimited, 100_000, unlimited, 100, none, &keep{}, 0}},
		{"no quota", podOf("u", guaranteed), Config{NoQuota: true}, values{1024, unlimited, 100_000, 1 << 20, unlimited, none, &keep{}, 0}},
		{"memory kept", podOf("u", guaranteed), Config{Reserve: true}, values{1024, 100_000, 100_000, 1 << 20, unlimited, none, &keep{min: 1 << 20}, 0}},
		{"memory kept if nothing else helps", podOf("u", "memory=3Mi", "memory=1Mi"), Config{Reserve: true}, values{2, unlimited, 100_000, unlimited, unlimited, none, &keep{low: 4 << 20}, 0}},
		{"another period", podOf("u", guaranteed), Config{Period: 10 * time.Millisecond}, values{1024, 10_000, 10_000, 1 << 20, unlimited, none, &keep{}, 0}},
		{"the least there is", podOf("u", "cpu=1m cpu<1m memory<1Mi"), Config{}, values{2, 1000, 100_000, 1 << 20, unlimited, none, &keep{}, 0}},
		{"huge pages", podOf("u", "hugepages-2Mi=4Mi hugepages-1Gi=1Gi hugepages-64Ki=64Ki"), Config{}, values{2, unlimited, 100_000, unlimited, unlimited, map[string]int64{"2MB": 4 << 20, "1GB": 1 << 30, "64KB": 64 << 10}, &keep{}, 0}},
	} {
		tree, err := New(tt.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, tree.cfg.podValues(tt.pod), cmp.AllowUnexported(values{}, keep{})); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.rule, diff)
		}
	}
}

func TestWeightsFollowShares(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 1024: 39, maxShares: 10_000} {
		if got := weight(shares); got != want {
			t.Errorf("%d shares: %d, want %d", shares, got, want)
		}
	}
	for w := int64(1); w <= 10_000; w++ {
		if got := weight(unweight(w)); got != w {
			t.Fatalf("weight %d comes back as %d", w, got)
		}
	}
}

func TestRaised(t *testing.T) {
	has := values{shares: 10, quota: 20, period: 100, memory: 30, pids: unlimited}
	wants := values{shares: 5, quota: 40, period: 100, memory: unlimited, pids: 7}
	if diff := cmp.Diff(values{shares: 10, quota: 40, period: 100, memory: unlimited, pids: unlimited}, raised(has, wants), cmp.AllowUnexported(values{}, keep{})); diff != "" {
		t.Error(diff)
	}
}

func TestTiersAndRoot(t *testing.T) {
	pods := []*v1.Pod{podOf("a", "cpu=1"), podOf("b", "cpu=500m"), podOf("c", guaranteed), podOf("d", "")}
	if got := new(Config).tierValues(burstable, pods).shares; got != 1536 {
		t.Errorf("burstable %d", got)
	}
	if got := new(Config).tierValues(bestEffort, pods).shares; got != 2 {
		t.Errorf("best effort %d", got)
	}
	got := rootValues(sizes("cpu=2 memory=1Gi pid=500 hugepages-2Mi=4Mi").Requests)
	want := values{shares: 2048, memory: 1 << 30, pids: 500, hugepages: map[string]int64{"2MB": 4 << 20}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(values{}, keep{})); diff != "" {
		t.Error(diff)
	}
}
