package syncloop_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
)

// tally counts, by name and labels.
type tally struct {
	mu     sync.Mutex // guards counts
	counts map[string]float64
}

type tallied struct {
	*tally
	name string
}

func (t *tally) Counter(name, _ string, _ ...string) (observe.Metric, error) {
	return tallied{t, name}, nil
}

func (t *tally) Gauge(name, help string, _ ...string) (observe.Metric, error) {
	return t.Counter(name, help)
}

func (t *tally) Histogram(name, help string, _ []float64, _ ...string) (observe.Metric, error) {
	return t.Counter(name, help)
}

func (t tallied) Record(v float64, labels ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[strings.Join(append([]string{t.name}, labels...), " ")] += v
}

func (tallied) Forget(...string) {}

// disrupted is what the server has of a pod's condition DisruptionTarget, and the message of its status.
func (s *server) disrupted(name string) string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.objects[name].Status
	for _, c := range status.Conditions {
		if c.Type == v1.DisruptionTarget {
			return fmt.Sprintf("%s; %s %s: %s", status.Message, c.Status, c.Reason, c.Message)
		}
	}
	return status.Message
}

func TestACriticalPodTakesThePlaceOfAnother(t *testing.T) {
	counts := &tally{counts: map[string]float64{}}
	onNode(t, fits("10", func(cfg *syncloop.Config) { cfg.Observe.Metrics = counts }), func(n *node) {
		n.do("add best app=sleep_100000 source=api")
		n.do("add large app=trap_''_TERM;_sleep_100000 source=api grace=20 cpu=1500m")
		n.do("add small app=sleep_100000 source=api cpu=400m")
		time.Sleep(5 * time.Second)
		n.do("add vital app=sleep_100000 source=api cpu=1 priority=2000000000")
		time.Sleep(10 * time.Second)
		n.stands("within the grace of the one that is to go", "[best-1 large-1 small-1], large Running, vital Pending", "large", "vital")
		n.do("add late app=sleep_100000 source=api cpu=100m") // has come too late for what vital is to have
		time.Sleep(30 * time.Second)
		n.stands("after it", "[best-1 late-1 small-1 vital-1], large Failed Preempting, late Running", "large", "late")
		want := "Preempted in order to admit critical pod; True TerminationByKubelet: Pod was preempted by Kubelet to accommodate a critical pod."
		if got := n.api.disrupted("large"); got != want {
			t.Errorf("the status says %s, want %s", got, want)
		}
		if got := n.told("Preempting"); got != "Preempted in order to admit critical pod\n" {
			t.Errorf("people are told %q", got)
		}
		if got := counts.counts["kubelet_preemptions cpu"]; got != 1 {
			t.Errorf("counted are %v", counts.counts)
		}
	})
}

func TestWhatIsMadeFreeForACriticalPodIsGivenToNobodyElse(t *testing.T) {
	onNode(t, fits("10"), func(n *node) {
		n.do("add old app=trap_''_TERM;_sleep_100000 source=api grace=20 cpu=1500m")
		synctest.Wait()
		n.do("add vital app=sleep_100000 source=api cpu=2 priority=2000000000")
		synctest.Wait()
		n.do("add greedy app=sleep_100000 source=api cpu=500m") // for which there is room now
		time.Sleep(time.Minute)
		n.stands("at the end", "[vital-1], greedy Failed OutOfcpu", "greedy")
	})
}

func TestTwoCriticalPodsDoNotShareOnePlace(t *testing.T) {
	onNode(t, fits("2"), func(n *node) {
		n.do("add one app=trap_''_TERM;_sleep_100000 source=api grace=20")
		n.do("add two app=trap_''_TERM;_sleep_100000 source=api grace=20")
		synctest.Wait()
		n.do("add vital app=sleep_100000 priority=2000000000") // from a file
		synctest.Wait()
		n.do("add dear app=sleep_100000 source=api priority=2000000000")
		synctest.Wait()
		n.do("add more app=sleep_100000 source=api priority=2000000000")
		time.Sleep(time.Minute)
		n.stands("at the end", "[dear-1 vital-1], one Failed Preempting, two Failed Preempting, more Failed UnexpectedAdmissionError", "one", "two", "more")
	})
}

func TestNobodyIsEndedForAPodThatIsRefusedAllTheSame(t *testing.T) {
	onNode(t, fits("10", func(cfg *syncloop.Config) { cfg.Admit = append(cfg.Admit, admit.AppArmor{}) }), func(n *node) {
		n.do("add web app=sleep_100000 source=api cpu=1500m")
		synctest.Wait()
		p := n.pod("vital", []string{"app=sleep_100000", "source=api", "cpu=1", "priority=2000000000"})
		p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
		n.pods["vital"] = p
		n.api.put(p)
		time.Sleep(time.Minute)
		n.stands("at the end", "[web-1], vital Failed AppArmor", "vital")
	})
}

func TestACriticalPodGrowsInThePlaceOfAnother(t *testing.T) {
	onNode(t, fits("10"), func(n *node) {
		n.do("add vital app=sleep_100000 source=api cpu=500m priority=2000000000")
		n.do("add one app=trap_''_TERM;_sleep_100000 source=api grace=20 cpu=500m")
		n.do("add two app=sleep_100000 source=api cpu=800m")
		time.Sleep(5 * time.Second)
		n.do("resize vital app=1")
		time.Sleep(10 * time.Second)
		if got := n.told("ResizeDeferred"); !strings.Contains(got, "Node didn't have enough resource: cpu, requested: 1000") {
			t.Errorf("while the other ends, people are told %q", got)
		}
		n.do("add three app=sleep_100000 source=api cpu=100m") // not a reason to end it, too
		time.Sleep(30 * time.Second)
		n.stands("after it", "[three-1 two-1 vital-1], one Failed Preempting", "one")
		if n.told("ResizeCompleted") == "" {
			t.Error("nobody is told that the resize is done")
		}
	})
}

func TestAPodWaitsForTheRoomOfOneThatWasTakenAwayAtOnce(t *testing.T) {
	onNode(t, fits("2"), func(n *node) {
		n.do("add old app=trap_''_TERM;_sleep_100000 source=api grace=20 cpu=1500m")
		synctest.Wait()
		n.do("remove old") // nothing is left of it in the API, so a scheduler counts it no more
		n.do("add new app=sleep_100000 source=api cpu=1500m")
		n.do("add huge app=sleep_100000 source=api cpu=9")
		time.Sleep(5 * time.Second)
		// There would be no room for huge without the old one either; on a busy node others end all the time.
		n.stands("while it ends", "[old-1], new Pending, huge Failed OutOfcpu", "new", "huge")
		time.Sleep(30 * time.Second)
		n.stands("after it", "[new-1], new Running", "new")
	})
}
