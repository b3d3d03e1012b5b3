package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestOnePodGoesForAHardThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("small", 100*mi)
		n.run("big", 600*mi, requests("memory", "200Mi"))
		n.run("other", 250*mi)
		changes := 0
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), func(c *eviction.Config) { c.Changed = func() { changes++ } })
		pressure(t, m)
		n.check(m, "big")
		want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. " +
			"Container c was using 600Mi, request is 200Mi, has larger consumption of memory. "
		if diff := cmp.Diff([]runtime.Termination{{Grace: time.Second, Reason: "Evicted", Message: want, Disruption: true}}, n.how); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(observe.Event{
			About: observe.Pod("default", "big", "big"), Warning: true, Reason: "Evicted", Message: want,
			Annotations: list{"offending_containers": "c", "offending_containers_usage": "600Mi", "starved_resource": "memory"},
		}, n.events[1]); diff != "" {
			t.Error(diff)
		}
		if got := n.events[0].Message; got != "Attempting to reclaim memory" {
			t.Error(got)
		}
		if got := n.reasons(); got != "EvictionThresholdMet Evicted" {
			t.Error(got)
		}
		pressure(t, m, v1.NodeMemoryPressure)
		n.check(m, "")
		if changes != 1 || n.reclaim != nil {
			t.Errorf("%d changes, reclaimed %v", changes, n.reclaim)
		}
	})
}

// closer is who knows better what pods use.
type closer func() (eviction.Observation, error)

func (c closer) Observe(context.Context) (eviction.Observation, error) { return c() }

func TestPodsAreLookedAtCloserBeforeOneIsChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 500*mi)
		n.run("b", 450*mi)
		looks, trouble := 0, error(nil)
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), func(c *eviction.Config) {
			c.Closer = closer(func() (eviction.Observation, error) {
				looks++
				return eviction.Observation{Usage: map[types.UID]eviction.Usage{"a": {Memory: mi}, "b": {Memory: 600 * mi}, "c": {Memory: mi}}}, trouble
			})
		})
		n.check(m, "b")
		time.Sleep(time.Minute)
		n.check(m, "") // a calm pass does not take the trouble
		if looks != 1 {
			t.Errorf("looked %d times", looks)
		}
		trouble = errors.New("away")
		n.run("c", 450*mi)
		time.Sleep(time.Minute)
		n.check(m, "a") // what was observed has to do
	})
}

func TestPressureStaysForTheTransitionPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("big", 950*mi)
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		n.check(m, "big") // seen at 0 s
		time.Sleep(5*time.Minute - 2*time.Second)
		n.check(m, "")
		pressure(t, m, v1.NodeMemoryPressure)
		time.Sleep(time.Second)
		n.check(m, "")
		pressure(t, m)
	})
}

func TestSoftThresholds(t *testing.T) {
	soft := func(t *testing.T) []eviction.Threshold {
		t.Helper()
		return parse(t, nil, list{"memory.available": "100Mi"}, list{"memory.available": "30s"}, nil)
	}
	t.Run("the condition is there at once, the kill waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.run("big", 950*mi)
			m := n.manager(soft(t), func(c *eviction.Config) { c.MaxGrace = 20 * time.Second })
			n.check(m, "")
			pressure(t, m, v1.NodeMemoryPressure)
			time.Sleep(30*time.Second - time.Millisecond)
			n.check(m, "")
			time.Sleep(time.Millisecond)
			n.check(m, "big")
			if got := n.how[0].Grace; got != 20*time.Second {
				t.Error(got)
			}
		})
	})
	t.Run("one pass above it starts the grace period anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.run("big", 950*mi)
			m := n.manager(soft(t), nil)
			n.check(m, "")
			time.Sleep(20 * time.Second)
			n.taken[eviction.MemoryAvailable] = -100 * mi
			n.check(m, "")
			n.taken[eviction.MemoryAvailable] = 0
			time.Sleep(20 * time.Second)
			n.check(m, "")
			time.Sleep(20 * time.Second)
			n.check(m, "")
			time.Sleep(10 * time.Second)
			n.check(m, "big")
		})
	})
	t.Run("grace is the pod's if that is shorter, and a second at least", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			own := int64(7)
			n.run("short", 500*mi, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &own })
			n.run("long", 450*mi)
			m := n.manager(soft(t), func(c *eviction.Config) { c.MaxGrace = time.Minute })
			n.check(m, "")
			time.Sleep(30 * time.Second)
			n.check(m, "short")
			n.taken[eviction.MemoryAvailable] = 500 * mi
			n.check(m, "long")
			n.run("default", 450*mi)
			m = n.manager(soft(t), nil)
			n.check(m, "")
			time.Sleep(30 * time.Second)
			n.check(m, "default")
			own = 100
			n.taken[eviction.MemoryAvailable] = 500 * mi
			n.run("patient", 450*mi, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &own })
			m = n.manager(soft(t), func(c *eviction.Config) { c.MaxGrace = -time.Second })
			n.check(m, "")
			time.Sleep(30 * time.Second)
			n.check(m, "patient")
			var got []time.Duration
			for _, h := range n.how {
				got = append(got, h.Grace)
			}
			if diff := cmp.Diff([]time.Duration{7 * time.Second, time.Minute, time.Second, 100 * time.Second}, got); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func TestFiguresThatAreNotNewEndNobodyButKeepTheCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stale = time.Minute
		n.run("a", 500*mi)
		n.run("b", 450*mi)
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		n.taken[eviction.MemoryAvailable] = 600 * mi
		n.check(m, "a")
		time.Sleep(10 * time.Second)
		n.check(m, "") // 600 Mi are taken and b is still there, but that was measured before
		pressure(t, m, v1.NodeMemoryPressure)
		time.Sleep(time.Minute)
		n.check(m, "b")
	})
}

func TestASignalNobodyKnowsIsNotMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 100*mi)
		m := n.manager(parse(t, eviction.Defaults(), nil, nil, nil), nil)
		n.check(m, "")
		pressure(t, m)
	})
}

func TestExemptPodsAreSkippedAndTheNextGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("static", 300*mi, annotated("kubernetes.io/config.source", "file"))
		n.run("mirror", 300*mi, annotated("kubernetes.io/config.mirror", "x"))
		n.run("critical", 200*mi, prio(2_000_000_000))
		n.run("ordinary", 150*mi, prio(1_999_999_999), annotated("kubernetes.io/config.source", "api"))
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		n.check(m, "ordinary")
		n.taken[eviction.MemoryAvailable] = 150 * mi
		n.check(m, "")
	})
}

func TestAPodThatDoesNotEndCountsAndHoldsUpThePassForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("stuck", 500*mi)
		n.run("other", 450*mi)
		n.refuse = errors.New("no answer")
		var killed []types.UID
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), func(c *eviction.Config) {
			c.Kill = func(uid types.UID) error { killed = append(killed, uid); return nil }
		})
		began := time.Now()
		n.check(m, "stuck")
		if took := time.Since(began); took != 40*time.Second {
			t.Errorf("took %v", took)
		}
		if !slices.Equal(killed, []types.UID{"stuck"}) { // k3s-io/k3s#2370: the runtime lacks the memory to end it
			t.Errorf("killed %v", killed)
		}
		if got := n.reasons(); got != "EvictionThresholdMet Evicted ExceededGracePeriod" {
			t.Error(got)
		}
	})
}

// unkillable are pods that cannot be ended, which is known at once.
type unkillable struct {
	*node
	asked int
}

func (u *unkillable) Kill(context.Context, types.UID, runtime.Termination) error {
	u.asked++
	return errors.New("the socket of the backend is gone")
}

func TestAPodThatCannotBeEndedIsTriedAgainAtTheNextPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 950*mi)
		u := &unkillable{node: n}
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), func(c *eviction.Config) { c.Pods = u })
		ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
		defer stop()
		if err := m.Run(ctx); err != nil || u.asked != 3 {
			t.Errorf("asked %d times in 25 s, %v", u.asked, err)
		}
		if ended, err := m.Check(t.Context()); len(ended) > 0 || err != nil {
			t.Errorf("ended %v, %v", ended, err)
		}
	})
}

func TestMemoryGoesBeforeDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.capacity[eviction.NodeFsAvailable] = 10
		n.taken[eviction.NodeFsAvailable] = 10
		n.run("hungry", 950*mi)
		m := n.manager(parse(t, list{"nodefs.available": "10%", "memory.available": "100Mi"}, nil, nil, nil), nil)
		n.check(m, "hungry")
		pressure(t, m, v1.NodeMemoryPressure, v1.NodeDiskPressure)
		if n.reclaim != nil {
			t.Error("memory is not found on disks")
		}
	})
}

func TestLocalLimitsEndEveryPodThatExceedsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		full := func(p *v1.Pod) {
			q := resource.MustParse("5Mi")
			p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &q}}}}
		}
		for _, name := range []string{"a", "b", "c"} {
			n.run(name, 400*mi, full)
			n.usage[types.UID(name)] = eviction.Usage{Memory: 400 * mi, Volumes: map[string]eviction.Amount{"scratch": {Bytes: 5*mi + 1}}}
		}
		n.pods[2].Annotations = list{"kubernetes.io/config.source": "file"}
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		uids, err := m.Check(t.Context()) // pressure ends nobody in the same pass
		slices.Sort(uids)
		if err != nil || fmt.Sprint(uids) != "[a b]" {
			t.Error(uids, err)
		}
		want := runtime.Termination{Grace: time.Second, Reason: "Evicted", Message: `Usage of EmptyDir volume "scratch" exceeds the limit "5Mi". `}
		if diff := cmp.Diff([]runtime.Termination{want, want}, n.how); diff != "" {
			t.Error(diff)
		}
		if n.events[0].Annotations != nil {
			t.Error("annotations are for pressure")
		}
		n.pods[0].Annotations = nil
		m = n.manager(nil, func(c *eviction.Config) { c.NoLocalLimits = true })
		n.check(m, "")
	})
}

func TestRunTicksAndGoesOnAtOnceAfterAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 300*mi)
		n.run("b", 200*mi)
		n.run("c", 100*mi)
		n.taken[eviction.MemoryAvailable] = 700 * mi
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b"}, n.ended); diff != "" { // a second each
			t.Error(diff)
		}
		n.mu.Lock()
		n.taken[eviction.MemoryAvailable] = 900 * mi
		n.mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b", "c"}, n.ended); diff != "" {
			t.Error(diff)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	n := newNode(t)
	memory := func(v eviction.Value, grace time.Duration) eviction.Config {
		return eviction.Config{Source: n, Pods: n, Thresholds: []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: v, Grace: grace}}}
	}
	none := resource.MustParse("0")
	for want, c := range map[string]eviction.Config{
		"Source and Pods are required":         {},
		`there is no signal "coffee.available`: {Source: n, Pods: n, Thresholds: []eviction.Threshold{{Signal: "coffee.available"}}},
		"Every -1ns":                           {Source: n, Pods: n, Every: -1},

		"threshold of memory.available is 0%; it must be above zero": memory(eviction.Value{}, 0),
		"threshold of memory.available is 0; it must be above zero":  memory(eviction.Value{Quantity: &none}, 0),
		"memory.available is 100%; it must be":                       memory(eviction.Value{Percent: 100}, 0),
		"memory.available has a grace period of -1s":                 memory(eviction.Value{Percent: 10}, -time.Second),
	} {
		if _, err := eviction.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
