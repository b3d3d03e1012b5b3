package nodestatus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFirstReadyIsTheFirstThatCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		w.health = errors.New("the engine starts")
		w.run(t)
		time.Sleep(2050 * time.Millisecond)
		if w.ready() != v1.ConditionFalse {
			t.Fatal("ready with a complaint")
		}
		w.told(t, "Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID")
		w.want(t, map[string]int{"register": 1})
		w.set(func(h *host) { h.health = nil })
		time.Sleep(100 * time.Millisecond)
		if w.ready() != v1.ConditionTrue {
			t.Error("not ready 100 ms after it could be")
		}
		w.told(t, "NodeReady")
		w.want(t, map[string]int{"update": 1})
	})
}

func TestHurryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ready := range []bool{true, false} {
			w := node(t)
			if !ready {
				w.health = errors.New("no")
			}
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			defer stop()
			go func() {
				time.Sleep(40 * time.Second)
				w.set(func(h *host) { h.asked = 0 })
			}()
			if err := w.r.Run(ctx); err != nil {
				t.Error(err)
			}
			if w.asked > 8 {
				t.Errorf("ready %v: computed %d times in 80 s", ready, w.asked)
			}
		}
	})
}

func TestAtRestOneReportInFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		w.run(t)
		time.Sleep(time.Second)
		w.took()
		time.Sleep(10 * time.Hour)
		n := w.took()
		if n["get"] != 0 || n["register"] != 0 || n["update"] < 112 || n["update"] > 120 { // one in 5 min and up to a round
			t.Errorf("calls in ten hours: %v", n)
		}
		beat := condition(w.now(), v1.NodeReady)
		if age := time.Since(beat.LastHeartbeatTime.Time); age > 6*time.Minute {
			t.Errorf("heartbeat is %v old", age)
		}
		if beat.LastTransitionTime.After(w.start.Add(time.Second)) {
			t.Error("the last transition moved without one")
		}
	})
}

func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		w.run(t)
		time.Sleep(time.Second)
		w.took()
		w.events.took()

		w.set(func(h *host) { h.under = []v1.NodeConditionType{v1.NodeDiskPressure} })
		time.Sleep(10500 * time.Millisecond)
		w.want(t, map[string]int{"update": 1})
		w.told(t, "NodeHasDiskPressure")
		c := condition(w.now(), v1.NodeDiskPressure)
		if c.Reason != "KubeletHasDiskPressure" || time.Since(c.LastTransitionTime.Time) > 11*time.Second {
			t.Errorf("condition %+v", c)
		}

		w.set(func(h *host) { h.under, h.health = nil, errors.New("node is shutting down") })
		w.kick <- struct{}{}
		synctest.Wait()
		w.want(t, map[string]int{"update": 1})
		w.told(t, "NodeHasNoDiskPressure", "NodeNotReady")
		if c := condition(w.now(), v1.NodeReady); c.Message != "node is shutting down" || c.Reason != "KubeletNotReady" {
			t.Errorf("condition %+v", c)
		}
	})
}

func TestReportAfterAChangeIsStaggered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		apart := map[time.Duration]bool{}
		for range 10 {
			w := node(t)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.r.Run(ctx) }()
			time.Sleep(time.Second)
			w.set(func(h *host) { h.machine.Memory++ })
			w.kick <- struct{}{}
			synctest.Wait()
			w.took()
			since := time.Now()
			for w.took()["update"] == 0 {
				time.Sleep(time.Second)
			}
			d := time.Since(since)
			if d < 149*time.Second || d > 465*time.Second {
				t.Errorf("next report %v after a change", d)
			}
			apart[d.Round(10*time.Second)] = true
			stop()
			<-done
		}
		if len(apart) < 4 {
			t.Errorf("reports come together: %v", apart)
		}
	})
}

func TestOthersWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		w.run(t)
		time.Sleep(time.Second)
		custom := v1.NodeCondition{Type: "KernelDeadlock", Status: v1.ConditionTrue, Reason: "Theirs"}
		w.change(func(n *v1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, custom)
			c := condition(n, v1.NodeReady)
			c.Status, c.Reason, c.Message = v1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
			*condition(n, v1.NodeMemoryPressure) = v1.NodeCondition{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "Forged"}
			n.Status.Capacity["example.org/dongle"] = resource.MustParse("3")
			n.Labels["team"] = "blue"
			delete(n.Labels, v1.LabelArchStable)
		})
		time.Sleep(11 * time.Second)
		n := w.now()
		if c := condition(n, v1.NodeReady); c.Status != v1.ConditionTrue || c.Reason != "KubeletReady" {
			t.Errorf("ready is %+v", c)
		}
		if c := condition(n, v1.NodeMemoryPressure); c.Reason != "KubeletHasSufficientMemory" {
			t.Errorf("memory pressure is %+v", c)
		}
		if c := condition(n, custom.Type); c == nil || *c != custom {
			t.Errorf("a condition of others is %+v", c)
		}
		if q, a := n.Status.Capacity["example.org/dongle"], n.Status.Allocatable["example.org/dongle"]; q.Value() != 3 || a.Value() != 3 {
			t.Error("a capacity of others is lost", n.Status.Capacity, n.Status.Allocatable)
		}
		if n.Labels["team"] != "blue" || n.Labels[v1.LabelArchStable] == "" {
			t.Error("labels", n.Labels)
		}
	})
}

func TestServerAway(t *testing.T) {
	t.Run("when registering: asks again after 0.1, 0.2, ... 7 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := node(t)
			w.fail = func(string) error { return errors.New("connection refused") }
			w.run(t)
			time.Sleep(6350 * time.Millisecond) // 0 0.1 0.3 0.7 1.5 3.1 6.3
			w.want(t, map[string]int{"register": 7})
			time.Sleep(time.Minute)
			w.failWith(nil)
			time.Sleep(7 * time.Second)
			if w.ready() != v1.ConditionTrue {
				t.Error("not registered once the server is back")
			}
			if got := w.events.took(); slices.Index(got, "NodeHasSufficientMemory") != 1 || len(got) != 4 {
				t.Error("events", got)
			}
		})
	})
	t.Run("when sending: five attempts a round, connections are suspected from the second on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			failing := 0
			w := node(t, func(c *Config) { c.Failing = func() { failing++ } })
			w.run(t)
			time.Sleep(time.Second)
			w.took()
			w.failWith(func(op string) error {
				if op == "update" {
					return errors.New("no route to host")
				}
				return nil
			})
			w.set(func(h *host) { h.health = errors.New("no") })
			w.kick <- struct{}{}
			synctest.Wait()
			w.want(t, map[string]int{"update": 5, "get": 4})
			if failing != 4 {
				t.Errorf("told %d times that connections may be dead", failing)
			}
			w.events.took()
			w.failWith(nil)
			time.Sleep(11 * time.Second)
			w.told(t, "NodeNotReady")
		})
	})
	t.Run("one that never answers costs ten seconds a call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := node(t)
			w.run(t)
			time.Sleep(time.Second)
			n := 0
			w.failWith(func(op string) error {
				if n++; n <= 2 {
					return errHang
				}
				return nil
			})
			w.set(func(h *host) { h.health = errors.New("no") })
			w.kick <- struct{}{}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if w.ready() != v1.ConditionFalse {
				t.Error("not told after two calls without an answer")
			}
		})
	})
	t.Run("a stop does not wait for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := node(t)
			w.fail = func(string) error { return errHang }
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			began := time.Now()
			if err := w.r.Run(ctx); err != nil || time.Since(began) != time.Second {
				t.Errorf("Run ended with %v after %v", err, time.Since(began))
			}
		})
	})
}

func TestWatchThatLagsTellsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		w.health = errors.New("no")
		w.run(t)
		time.Sleep(time.Second)
		w.freeze()
		w.set(func(h *host) { h.health = nil })
		time.Sleep(time.Minute)
		got := w.events.took()
		if n := strings.Count(strings.Join(got, " "), "NodeReady"); n != 1 {
			t.Errorf("events %q", got)
		}
		if n := w.took()["update"]; n > 1 {
			t.Errorf("sent %d times", n)
		}
	})
}

func TestCordon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		w.run(t)
		time.Sleep(time.Second)
		w.events.took()
		w.change(func(n *v1.Node) { n.Spec.Unschedulable = true })
		time.Sleep(time.Minute)
		w.told(t, "NodeNotSchedulable")
		w.change(func(n *v1.Node) { n.Spec.Unschedulable = false })
		time.Sleep(time.Minute)
		w.told(t, "NodeSchedulable")
	})
}

func TestReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last *v1.Node
		w := node(t, func(c *Config) { c.Reported = func(n *v1.Node) { last = n } })
		if err := w.r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		if last == nil || last.UID != "uid-1" || !isReady(last) {
			t.Errorf("told %v", last)
		}
	})
}

// Stamps of a server whose clock was ahead, or of this host before its clock was set back, hold nothing up.
func TestCase_c181_clock_steps_change_no_rhythm(t *testing.T) {
	for _, step := range []time.Duration{3 * time.Hour, -6 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := node(t)
			w.run(t)
			time.Sleep(time.Second)
			w.change(func(n *v1.Node) {
				for i := range n.Status.Conditions {
					c := &n.Status.Conditions[i]
					c.LastHeartbeatTime = metav1.NewTime(c.LastHeartbeatTime.Add(step))
					c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Add(step))
				}
			})
			w.took()
			time.Sleep(time.Hour)
			if n := w.took()["update"]; n < 11 || n > 13 {
				t.Errorf("clock %v off: %d reports in an hour", step, n)
			}
			if age := time.Since(condition(w.now(), v1.NodeReady).LastHeartbeatTime.Time); age < 0 || age > 6*time.Minute {
				t.Errorf("clock %v off: heartbeat is %v old", step, age)
			}
		})
	}
}

func TestCase_c149_memory_comes_and_goes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reserved, err := ParseReserved(map[string]string{"memory": "7Gi"})
		if err != nil {
			t.Fatal(err)
		}
		w := node(t)
		w.r.cfg.Setters[2], err = Capacity(Sizes{
			Machine: func() (Machine, error) { w.host.mu.Lock(); defer w.host.mu.Unlock(); return w.machine, nil }, SystemReserved: reserved,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.run(t)
		time.Sleep(time.Second)
		w.events.took()
		for _, c := range []struct {
			memory           int64
			capacity, allows string
		}{{12 << 30, "12Gi", "5Gi"}, {6 << 30, "6Gi", "0"}, {8 << 30, "8Gi", "1Gi"}} {
			w.set(func(h *host) { h.machine.Memory = c.memory })
			time.Sleep(11 * time.Second)
			s := w.now().Status
			if s.Capacity.Memory().String() != c.capacity || s.Allocatable.Memory().String() != c.allows {
				t.Errorf("capacity %v, allocatable %v, want %+v", s.Capacity.Memory(), s.Allocatable.Memory(), c)
			}
			w.told(t, "NodeCapacityChanged")
		}
	})
}
