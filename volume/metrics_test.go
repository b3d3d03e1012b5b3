package volume_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/volume"
)

// gauges are what each series says now.
type gauges map[string]float64

func (g gauges) Gauge(name, _ string, _ ...string) (observe.Metric, error) {
	return gauge{g, name}, nil
}

func (g gauges) Counter(string, string, ...string) (observe.Metric, error) { return gauge{}, nil }

func (g gauges) Histogram(string, string, []float64, ...string) (observe.Metric, error) {
	return gauge{}, nil
}

type gauge struct {
	of   gauges // nil: nobody looks
	name string
}

func (g gauge) Record(v float64, labels ...string) {
	if g.of != nil {
		g.of[strings.Join(append([]string{g.name}, labels...), " ")] = v
	}
}

func (g gauge) Forget(...string) {}

// Dashboards of kubelets show how many volumes there are to be, and how many there are.
func TestVolumesAreCounted(t *testing.T) {
	seen := gauges{}
	h := newHouse(t, func(c *volume.Config) { c.Observe = observe.To{Metrics: seen} })
	counts := func(what string, want map[string]float64) {
		t.Helper()
		got := map[string]float64{}
		for series, n := range seen {
			if n != 0 && strings.HasPrefix(series, "volume_manager_total_volumes ") {
				got[series] = n
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
	const dirs, paths = "volume_manager_total_volumes kubernetes.io/empty-dir ", "volume_manager_total_volumes kubernetes.io/host-path "
	const desired, actual = "desired_state_of_world", "actual_state_of_world"
	there := filepath.Join(h.root, "there")
	pods := map[types.UID]*v1.Pod{
		"u1": podWith("u1", emptyDir("a"), emptyDir("b")),
		"u2": podWith("u2", emptyDir("a"), hostPath("host", there, v1.HostPathDirectory)),
	}
	mount := func(uid types.UID, fails bool) {
		t.Helper()
		for range 2 { // the second time nothing has changed
			if _, err := h.Mount(t.Context(), pods[uid]); (err != nil) != fails {
				t.Fatal(err)
			}
		}
	}
	mount("u1", false)
	mount("u2", true)
	counts("one is not there", map[string]float64{dirs + desired: 3, dirs + actual: 3, paths + desired: 1})
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	mount("u2", false)
	counts("all are there", map[string]float64{dirs + desired: 3, dirs + actual: 3, paths + desired: 1, paths + actual: 1})
	h.unmount(t, "u1")
	counts("a pod has ended", map[string]float64{dirs + desired: 1, dirs + actual: 1, paths + desired: 1, paths + actual: 1})
	if err := h.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	counts("the other one was swept", map[string]float64{})
}
