package nodestatus

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observe"
)

func TestNewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		w.run(t)
		synctest.Wait()
		w.want(t, map[string]int{"register": 1})
		if w.ready() != v1.ConditionTrue {
			t.Error("not ready at once")
		}
		w.told(t, "Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID")
		var kinds []string
		for _, c := range w.now().Status.Conditions {
			kinds = append(kinds, string(c.Type))
		}
		if got := strings.Join(kinds, " "); got != "MemoryPressure DiskPressure PIDPressure Ready" {
			t.Error("conditions", got)
		}
		if got := w.r.Ref(); got != (observe.Ref{Kind: "Node", Name: "n1", UID: "uid-1"}) {
			t.Errorf("Ref = %+v", got)
		}
	})
}

func TestNodeIsNamedByItsNameUntilItHasAnUID(t *testing.T) {
	w := node(t)
	if got := w.r.Ref(); got != (observe.Ref{Kind: "Node", Name: "n1", UID: "n1"}) {
		t.Errorf("Ref = %+v", got)
	}
}

func TestNodeObjectIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		w.run(t)
		time.Sleep(time.Second)
		w.drop()
		w.took()
		time.Sleep(11 * time.Second)
		n := w.now()
		if n.UID != "uid-2" || w.ready() != v1.ConditionTrue || n.Labels[v1.LabelHostname] != "n1" {
			t.Errorf("the node is not there again: %v", n)
		}
		if w.r.Ref().UID != "uid-2" {
			t.Error("events name the old node")
		}
	})
	t.Run("without a watch that shows it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := node(t)
			w.run(t)
			time.Sleep(time.Second)
			w.freeze()
			w.drop()
			w.set(func(h *host) { h.machine.Memory++ }) // something to send
			time.Sleep(11 * time.Second)
			if n := w.now(); n.UID != "uid-2" {
				t.Error("the node is not there again")
			}
		})
	})
	t.Run("and the watch goes on showing it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := node(t)
			w.run(t)
			time.Sleep(time.Second)
			w.freeze()
			w.drop()
			if _, err := w.Register(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
				t.Fatal(err) // somebody else made it anew
			}
			w.set(func(h *host) { h.machine.Memory++ })
			time.Sleep(11 * time.Second) // is sent to the new one, for who knows
			w.shownIs(w.now())
			time.Sleep(10 * time.Second)
			if w.ready() != v1.ConditionTrue || w.now().UID != "uid-2" || w.r.Ref().UID != "uid-2" {
				t.Errorf("node %v", w.now())
			}
		})
	})
	t.Run("and the watch shows it although it is registered again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := node(t)
			if err := w.r.Report(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.freeze()
			w.drop()
			w.set(func(h *host) { h.machine.Memory++ })
			for range 3 {
				if err := w.r.Report(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := w.r.Ref().UID; got != "uid-2" {
					t.Errorf("events name %s", got)
				}
			}
		})
	})
	t.Run("of a node that others make", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := node(t, func(c *Config) { c.NoRegister, c.Initial = true, nil })
			w.run(t)
			time.Sleep(30 * time.Second)
			if n := w.took(); n["register"] != 0 || n["get"] > 20 {
				t.Errorf("calls %v", n)
			}
			if _, err := w.Register(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(11 * time.Second)
			if w.ready() != v1.ConditionTrue {
				t.Error("not reported once it is there")
			}
		})
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		if err := w.r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		was := condition(w.now(), v1.NodeReady).LastTransitionTime
		time.Sleep(time.Hour)
		again := node(t, func(c *Config) { c.Sink, c.Seen = w.server, w.seen })
		w.took()
		if err := again.r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.want(t, map[string]int{"register": 1, "update": 1})
		if is := condition(w.now(), v1.NodeReady); is.LastTransitionTime != was || !is.LastHeartbeatTime.After(was.Time) {
			t.Errorf("ready is %+v", is)
		}
	})
}

func TestRestartOnAReadyNode(t *testing.T) {
	for rule, c := range map[string]struct {
		after   time.Duration // until the agent finds all in order
		unready time.Duration // until it says otherwise; 0: it does not
	}{
		"that stays ready is not unready in between": {after: 1500 * time.Millisecond},
		"that is not": {after: time.Minute, unready: 2 * time.Second},
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := node(t)
				if err := w.r.Report(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				again := node(t, func(c *Config) { c.Sink, c.Seen = w.server, w.seen })
				again.health = errors.New("nobody has looked yet")
				time.AfterFunc(c.after, func() { again.set(func(h *host) { h.health = nil }) })
				start, unready := time.Now(), time.Duration(0)
				again.run(t)
				for range 200 {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					if w.ready() != v1.ConditionTrue && unready == 0 {
						unready = time.Since(start)
					}
				}
				if unready.Round(200*time.Millisecond) != c.unready {
					t.Errorf("unready after %v, want %v", unready, c.unready)
				}
				if got := time.Since(condition(w.now(), v1.NodeReady).LastHeartbeatTime.Time); got > time.Minute {
					t.Errorf("nothing was reported for %v", got)
				}
			})
		})
	}
}

func TestReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t)
		if err := w.r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := node(t, func(c *Config) { c.Sink, c.Seen = w.server, w.seen })
		again.machine.BootID = "boot-2"
		again.run(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		var told []observe.Event
		for _, e := range again.events.all {
			if e.Reason == "Rebooted" {
				told = append(told, e)
			}
		}
		if len(told) != 1 || !told[0].Warning || told[0].Message != "Node n1 has been rebooted, boot id: boot-2" || told[0].About.UID != "uid-1" {
			t.Errorf("events %+v", told)
		}
	})
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	type sink struct{ Sink }
	for name, c := range map[string]Config{
		"nothing":           {},
		"nothing to make":   {Name: "n", Sink: sink{}},
		"another's node":    {Name: "n", Sink: sink{}, Initial: &v1.Node{}},
		"a negative round":  {Name: "n", Sink: sink{}, NoRegister: true, Every: -1},
		"a negative report": {Name: "n", Sink: sink{}, NoRegister: true, Report: -1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
