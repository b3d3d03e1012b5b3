package manager

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

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestFiguresAreKeptAndForgottenWithTheContainer(t *testing.T) {
	figs := &figures{series: map[string]int{}}
	inWorldWith(t, Config{Observe: observe.To{Metrics: figs}}, func(w *world) {
		answers := []probe.Result{probe.Success, probe.Failure, probe.Warning}
		w.answers(func(context.Context, string, string) (probe.Result, string, error) {
			if len(answers) == 0 {
				return probe.Unknown, "", errors.New("broken")
			}
			r := answers[0]
			answers = answers[1:]
			return r, "", nil
		})
		p := pod(v1.Container{ReadinessProbe: every("ready", 1)})
		w.m.Track(p, running("a", 0), false)
		time.Sleep(5500 * time.Millisecond)
		figs.want(t,
			"prober_probe_duration_seconds Readiness c web ns: 2",
			"prober_probe_total Readiness failed c web ns u: 1",
			"prober_probe_total Readiness successful c web ns u: 2")
		w.m.Track(p, seen(runtime.Container{ID: "a", Name: "c", State: runtime.Exited}), false)
		figs.want(t,
			"prober_probe_duration_seconds Readiness c web ns: 2",
			"prober_probe_total Readiness failed c web ns u: 1",
			"prober_probe_total Readiness successful c web ns u: 2")
		w.m.Track(p, seen(), false)
		figs.want(t)
		w.answers(always(probe.Success, ""))
		w.m.Track(p, running("b", 0), false)
		time.Sleep(time.Second / 2)
		w.m.Forget("u")
		figs.want(t)
	})
}

func TestNewReportsAMetricThatCannotBeMade(t *testing.T) {
	if _, err := New(Config{Observe: observe.To{Metrics: &figures{broken: errors.New("taken")}}}); err == nil {
		t.Error("no error")
	}
}

// figures counts what is recorded, by series.
type figures struct {
	broken error
	mu     sync.Mutex
	series map[string]int
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
	f.mu.Lock()
	defer f.mu.Unlock()
	var got []string
	for _, name := range slices.Sorted(maps.Keys(f.series)) {
		got = append(got, fmt.Sprintf("%s: %d", name, f.series[name]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

type figure struct {
	of   *figures
	name string
}

func (f figure) key(labels []string) string { return f.name + " " + strings.Join(labels, " ") }
func (f figure) Record(_ float64, labels ...string) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.of.series[f.key(labels)]++
}

func (f figure) Forget(labels ...string) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	delete(f.of.series, f.key(labels))
}
