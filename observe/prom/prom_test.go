package prom

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubeletkit/kubeletkit/observe"
)

// must makes an instrument.
func must(t *testing.T) func(observe.Metric, error) observe.Metric {
	t.Helper()
	return func(m observe.Metric, err error) observe.Metric {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// shows compares what a scrape gets, without help and type lines.
func shows(t *testing.T, reg prometheus.Gatherer, want ...string) {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", answer.Code, answer.Body)
	}
	var got []string
	for line := range strings.Lines(answer.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("a scrape shows\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestInstruments(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := New(reg)
	starts := must(t)(m.Counter("starts_total", "Starts.", "kind"))
	starts.Record(2, "init")
	starts.Record(1, "init")
	starts.Record(1, "app")
	starts.Record(-5, "app")
	pods := must(t)(m.Gauge("pods", "Pods."))
	pods.Record(3)
	pods.Record(2)
	took := must(t)(m.Histogram("took_seconds", "Time.", []float64{1, 5}, "op"))
	took.Record(0.5, "stop")
	took.Record(7, "stop")
	shows(t, reg,
		`pods 2`,
		`starts_total{kind="app"} 1`,
		`starts_total{kind="init"} 3`,
		`took_seconds_bucket{op="stop",le="1"} 1`,
		`took_seconds_bucket{op="stop",le="5"} 1`,
		`took_seconds_bucket{op="stop",le="+Inf"} 2`,
		`took_seconds_sum{op="stop"} 7.5`,
		`took_seconds_count{op="stop"} 2`)

	starts.Forget("init")
	starts.Forget("never recorded")
	took.Forget("stop")
	pods.Forget()
	shows(t, reg, `starts_total{kind="app"} 1`)
}

func TestAskingTwiceGivesTheSameInstrument(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for range 2 {
		m := New(reg)
		must(t)(m.Counter("c_total", "C.", "l")).Record(1, "x")
		must(t)(m.Gauge("g", "G.")).Record(1)
		must(t)(m.Histogram("h", "H.", []float64{1})).Record(1)
	}
	shows(t, reg, `c_total{l="x"} 2`, `g 1`, `h_bucket{le="1"} 2`, `h_bucket{le="+Inf"} 2`, `h_sum 2`, `h_count 2`)
}

func TestATakenNameIsAnError(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := New(reg)
	must(t)(m.Counter("name", "Help.", "l"))
	for rule, ask := range map[string]func() (observe.Metric, error){
		"another kind":      func() (observe.Metric, error) { return m.Gauge("name", "Help.", "l") },
		"another histogram": func() (observe.Metric, error) { return m.Histogram("name", "Help.", nil, "l") },
		"other labels":      func() (observe.Metric, error) { return m.Counter("name", "Help.", "l", "more") },
		"another help":      func() (observe.Metric, error) { return m.Counter("name", "Other.", "l") },
		"no name":           func() (observe.Metric, error) { return m.Counter("", "Help.") },
	} {
		if got, err := ask(); err == nil || got != nil {
			t.Errorf("%s: %v, %v", rule, got, err)
		}
	}
}

func TestTwoNodesShareARegistryByALabel(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for i := range 2 {
		m := New(prometheus.WrapRegistererWith(prometheus.Labels{"node": fmt.Sprint("n", i)}, reg))
		for range 2 { // also a wrapped one is found again
			must(t)(m.Counter("c_total", "C.")).Record(1)
		}
	}
	shows(t, reg, `c_total{node="n0"} 2`, `c_total{node="n1"} 2`)
}

func TestLabelValuesFromOutsideDoNotPanic(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	c := must(t)(New(reg).Counter("c_total", "C.", "reason", "code"))
	labels := []string{"bad \xff byte", "1"}
	c.Record(1, labels...)
	if labels[0] != "bad \xff byte" {
		t.Error("the caller's labels were changed")
	}
	shows(t, reg, "c_total{code=\"1\",reason=\"bad \uFFFD byte\"} 1")
	c.Forget(labels...)
	shows(t, reg)
}

func BenchmarkRecord(b *testing.B) {
	c, err := New(prometheus.NewRegistry()).Counter("c_total", "C.", "a", "b")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Record(1, "x", "y")
	}
}
