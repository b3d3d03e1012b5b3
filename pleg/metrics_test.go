package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/pleg"
)

func TestFigures(t *testing.T) {
	figs := &figures{values: map[string][]float64{}}
	onNode(t, pleg.Config{Observe: observe.To{Metrics: figs}}, func(n *node) {
		n.has("a s1- s2+ c1- c2+ c3+ | b s3- c4- c5?")
		n.does(func(_ context.Context, what string) error {
			if what == "list" {
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		n.relist()
		time.Sleep(3 * time.Second)
		n.relist()
		figs.want(t,
			"kubelet_pleg_last_seen_seconds [9.466848e+08 9.46684805e+08]",
			"kubelet_pleg_pod_relist_duration_seconds [0 0]",
			"kubelet_pleg_relist_duration_seconds [2 2]",
			"kubelet_pleg_relist_interval_seconds [5]",
			"kubelet_running_containers created [1 1]",
			"kubelet_running_containers exited [2 2]",
			"kubelet_running_containers running [2 2]",
			"kubelet_running_containers unknown [0 0]",
			"kubelet_running_pods [1 1]")
	})
}

func TestNewReportsAMetricThatCannotBeMade(t *testing.T) {
	broken := observe.To{Metrics: &figures{broken: errors.New("taken")}}
	if _, err := pleg.New(pleg.Config{Source: &node{}, Observe: broken}); err == nil {
		t.Error("no error")
	}
}

// figures keeps all that is recorded, by series.
type figures struct {
	broken error
	mu     sync.Mutex
	values map[string][]float64
}

func (f *figures) Counter(name, _ string, _ ...string) (observe.Metric, error) {
	return figure{f, name}, f.broken
}

func (f *figures) Gauge(name, _ string, _ ...string) (observe.Metric, error) {
	return figure{f, name}, f.broken
}

func (f *figures) Histogram(name, _ string, _ []float64, _ ...string) (observe.Metric, error) {
	return figure{f, name}, f.broken
}

func (f *figures) want(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		got = append(got, fmt.Sprint(name, f.values[name]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

type figure struct {
	of   *figures
	name string
}

func (f figure) Record(v float64, labels ...string) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	key := strings.Join(append([]string{f.name}, labels...), " ") + " "
	f.of.values[key] = append(f.of.values[key], v)
}

func (f figure) Forget(...string) {}
