package eviction_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction"
)

// A is BestEffort, B and C are Burstable, D is Guaranteed: what they use beyond their requests decides, then priority. One pod
// goes in each pass.
func TestCase_c049_usage_above_requests_decides_and_no_class(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.capacity[eviction.MemoryAvailable] = 4096 * mi
		n.run("D", 900*mi, requests("memory", "1Gi"))
		n.run("C", 2048*mi, prio(1000), requests("memory", "100Mi"))
		n.run("A", 50*mi)
		n.run("B", 900*mi, requests("memory", "100Mi"))
		m := n.manager(parse(t, list{"memory.available": "4000Mi"}, nil, nil, nil), nil)
		for _, next := range []string{"B", "A", "C", "D"} {
			n.check(m, next)
			time.Sleep(time.Minute)
		}
	})
}

func TestCase_c051_static_pod_with_a_priority(t *testing.T) {
	for _, mirrored := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.run("control-plane", 800*mi, prio(2_000_001_000), annotated("kubernetes.io/config.source", "file"))
			if mirrored { // what the API shows of it claims to come from there
				n.pods[0].Annotations["kubernetes.io/config.mirror"] = "x"
				n.pods[0].Annotations["kubernetes.io/config.source"] = "api"
			}
			n.run("next", 150*mi)
			m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
			n.check(m, "next")
		})
	}
}

// imagefs.available<10% with 10% to be reclaimed: images free 12%.
func TestCase_c053_minimum_reclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.capacity[eviction.ImageFsAvailable] = 100
		n.layout = eviction.ImagesApart
		n.run("a", mi)
		n.taken[eviction.ImageFsAvailable], n.images = 79, 12
		m := n.manager(parse(t, list{"imagefs.available": "10%"}, nil, nil, list{"imagefs.available": "10%"}), nil)
		n.check(m, "") // 9% free, 21% after cleaning
		if diff := cmp.Diff([]string{"dead", "images"}, n.reclaim); diff != "" {
			t.Error(diff)
		}
		pressure(t, m, v1.NodeDiskPressure)
		time.Sleep(6 * time.Minute)
		n.check(m, "")
		pressure(t, m)

		time.Sleep(time.Second)
		n.taken[eviction.ImageFsAvailable], n.images = 88, 3 // this time images are not enough
		n.check(m, "a")
		n.taken[eviction.ImageFsAvailable] = 81 // above the threshold, but not by what is to be reclaimed
		time.Sleep(6 * time.Minute)
		n.check(m, "")
		pressure(t, m, v1.NodeDiskPressure)
		n.taken[eviction.ImageFsAvailable] = 80
		time.Sleep(6 * time.Minute)
		n.check(m, "")
		pressure(t, m)
	})
}

func TestCase_c054_each_signal_has_its_own_disk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.capacity[eviction.NodeFsAvailable], n.taken[eviction.NodeFsAvailable] = 50, 40
		n.capacity[eviction.ImageFsAvailable], n.taken[eviction.ImageFsAvailable] = 500, 5
		n.capacity[eviction.ContainerFsAvailable], n.taken[eviction.ContainerFsAvailable] = 30, 29
		n.run("a", mi)
		for layout, want := range map[eviction.Layout]string{eviction.ImagesApart: "", eviction.Split: "a"} {
			m := n.manager(parse(t, list{"nodefs.available": "15%", "imagefs.available": "1%"}, nil, nil, nil), func(c *eviction.Config) {
				c.Layout = func(context.Context) (eviction.Layout, error) { return layout, nil }
			})
			n.check(m, want) // the third disk has 1 of 30: less than 15% of it, more than 1%
		}
	})
}

func TestCase_c054_a_signal_nobody_knows_is_told_once_and_not_met(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", mi)
		var log strings.Builder
		m := n.manager(parse(t, list{"imagefs.available": "99%"}, nil, nil, nil), func(c *eviction.Config) {
			c.Observe.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		n.check(m, "")
		n.check(m, "")
		if got := strings.Count(log.String(), "nothing is known of a signal"); got != 1 || !strings.Contains(log.String(), "signal=imagefs.available") {
			t.Errorf("told %d times: %s", got, &log)
		}
		pressure(t, m)
	})
}

func TestCase_c057_hard_evictions_do_not_wait_for_the_pods_grace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		sixty := int64(60)
		n.run("writer", mi, func(p *v1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = &sixty
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("5Mi")}
		})
		n.usage["writer"] = eviction.Usage{Storage: 10 * mi}
		began := time.Now()
		n.check(n.manager(nil, nil), "writer")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if h := n.how[0]; h.Reason != "Evicted" || h.Grace != time.Second {
			t.Error(h)
		}
	})
}

func TestCase_c058_it_looks_again_after_cleaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.capacity[eviction.NodeFsAvailable], n.taken[eviction.NodeFsAvailable], n.dead = 100, 75, 20
		n.run("a", mi)
		m := n.manager(parse(t, list{"nodefs.available": "10%"}, nil, nil, nil), nil)
		n.check(m, "")
		if diff := cmp.Diff([]string{"dead"}, n.reclaim); diff != "" { // and images are left alone
			t.Error(diff)
		}
	})
}

// Each eviction frees 10%, figures are made anew every 15 s, one is enough.
func TestCase_c059_it_waits_for_figures_newer_than_the_last_eviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stale, n.cleanup = 15*time.Second, 5*time.Second
		for _, name := range []string{"a", "b", "c", "d"} {
			n.run(name, 100*mi)
		}
		n.taken[eviction.MemoryAvailable] = 550 * mi
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		stop()
		<-done
		if diff := cmp.Diff([]string{"a"}, n.ended); diff != "" {
			t.Error(diff)
		}
	})
}

// Its own writes into /etc/hosts and the termination log are part of what a pod uses; who measures adds them to Storage.
func TestCase_c183_files_of_the_agent_count_as_the_pods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("writer", mi, func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("50Mi")}
		})
		n.usage["writer"] = eviction.Usage{Storage: 50 * mi, Containers: []eviction.ContainerUsage{{Name: "c"}}}
		m := n.manager(nil, nil)
		n.check(m, "")
		n.usage[types.UID("writer")] = eviction.Usage{Storage: 50*mi + 4096}
		n.check(m, "writer")
	})
}

func TestCase_c185_the_condition_clears_after_space_was_freed_by_hand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.capacity[eviction.NodeFsAvailable], n.taken[eviction.NodeFsAvailable] = 100, 99
		m := n.manager(parse(t, list{"nodefs.available": "10%"}, nil, nil, nil), nil)
		n.check(m, "")
		time.Sleep(20 * time.Minute)
		n.check(m, "")
		n.taken[eviction.NodeFsAvailable] = 40
		time.Sleep(5*time.Minute - time.Second)
		n.check(m, "")
		pressure(t, m, v1.NodeDiskPressure)
		time.Sleep(time.Second)
		n.check(m, "")
		pressure(t, m)
		if err := m.Admit(t.Context(), &v1.Pod{}, nil); err != nil {
			t.Error(err)
		}
	})
}
