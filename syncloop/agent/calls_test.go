package agent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// changing is a source whose set changes.
type changing chan []*v1.Pod

func (c changing) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	for {
		select {
		case pods := <-c:
			set(pods, true)
		case <-ctx.Done():
			return nil
		}
	}
}

// looks are the calls that ask an engine.
func looks() []string {
	return []string{"ListSandboxes", "ListContainers", "Sandbox", "Container", "Image", "Info"}
}

// acts are those that have it do something.
func acts() []string {
	return []string{"RunSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopSandbox", "RemoveContainer", "RemoveSandbox"}
}

// counts are the calls of an engine so far.
func counts(e *runtimetest.Engine) map[string]int {
	n := map[string]int{}
	for _, method := range append(looks(), acts()...) {
		n[method] = e.Calls(method)
	}
	return n
}

// ticking are metrics that take a moment to note how long a step was: as everywhere else, no two steps of a pod are one.
type ticking struct{}

func (ticking) Counter(string, string, ...string) (observe.Metric, error) { return ticking{}, nil }

func (ticking) Gauge(string, string, ...string) (observe.Metric, error) { return ticking{}, nil }

func (ticking) Histogram(name, _ string, _ []float64, _ ...string) (observe.Metric, error) {
	if name == "kubelet_pod_worker_duration_seconds" {
		return tick{}, nil
	}
	return ticking{}, nil
}

func (ticking) Record(float64, ...string) {}

func (ticking) Forget(...string) {}

type tick struct{ ticking }

func (tick) Record(float64, ...string) { time.Sleep(100 * time.Microsecond) }

// A pod costs few calls of its engine from its creation until nothing is left of it: what the engine must be told, and looks
// when it has started and when it has ended, and once more for an event of that same moment. Events tell of each step, but of
// nothing new, and what is gone needs no look.
func TestAPodCostsFewCalls(t *testing.T) {
	for containers, most := range map[int]map[string]int{
		1: {
			"Info": 1, "Image": 1, "ListSandboxes": 3, "ListContainers": 3, "Sandbox": 1, "Container": 2,
			"RunSandbox": 1, "CreateContainer": 1, "StartContainer": 1, "StopContainer": 1, "StopSandbox": 1, "RemoveSandbox": 1,
		},
		3: {
			"Info": 1, "Image": 3, "ListSandboxes": 3, "ListContainers": 3, "Sandbox": 1, "Container": 6,
			"RunSandbox": 1, "CreateContainer": 3, "StartContainer": 3, "StopContainer": 3, "StopSandbox": 1, "RemoveSandbox": 1,
		},
	} {
		t.Run(fmt.Sprint(containers, " containers"), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { life(t, containers, most) }) })
	}
}

func life(t *testing.T, containers int, most map[string]int) {
	t.Helper()
	engine, sink, source := newEngine(), newTold(), make(changing)
	for i, method := range acts() {
		engine.Inject(method, runtimetest.Delay(time.Duration(40+7*i)*time.Millisecond))
	}
	_, stop := start(t, Config{
		Sources: map[string]syncloop.PodSource{"test": source}, Sink: sink, Root: t.TempDir(), Engine: engine, Notifier: engine, Scheme: "memory",
		Observe: observe.To{Metrics: ticking{}},
	})
	defer stop()
	source <- nil
	time.Sleep(15 * time.Second) // the stream of events stands: pods are listed once a minute
	before := counts(engine)
	p := pod("web")
	p.Spec.Containers[0].Command = []string{"/bin/sh", "-c", "trap 'exit 0' TERM; sleep 1000"}
	for i := range containers - 1 {
		c := p.Spec.Containers[0]
		c.Name = fmt.Sprint("c", i)
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	source <- []*v1.Pod{p}
	time.Sleep(10 * time.Second)
	if got := sink.of("web"); got != "Running" {
		t.Fatalf("the pod is %q", got)
	}
	source <- nil
	time.Sleep(10 * time.Second)
	if sandboxes, containers := engine.Truth(); len(sandboxes)+len(containers) > 0 {
		t.Fatalf("%d sandboxes and %d containers are left", len(sandboxes), len(containers))
	}
	sum := 0
	for method, calls := range counts(engine) {
		calls -= before[method]
		sum += calls
		if calls > most[method] {
			t.Errorf("%d calls of %s, and %d should do", calls, method, most[method])
		}
	}
	t.Logf("%d calls in all", sum)
}
