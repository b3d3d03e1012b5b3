package nodestatus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observe"
)

func TestSettersHinderNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := []Setter{
			func(context.Context, *v1.Node) error { return errors.New("cannot") },
			func(ctx context.Context, _ *v1.Node) error { <-ctx.Done(); return ctx.Err() },
		}
		var log strings.Builder
		w := node(t, func(c *Config) {
			c.Setters = append(bad, c.Setters...)
			c.Observe.Log = textLog(&log)
		})
		w.run(t)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w.ready() != v1.ConditionTrue {
			t.Error("not ready")
		}
		time.Sleep(10 * time.Minute)
		if n := strings.Count(log.String(), "cannot be determined"); n != 2 {
			t.Errorf("%d complaints, want one a setter:\n%s", n, log.String())
		}
	})
}

func TestSetterThatWorksAgain(t *testing.T) {
	var log strings.Builder
	failing := errors.New("cannot")
	w := node(t, func(c *Config) {
		c.Setters = append(c.Setters, func(context.Context, *v1.Node) error { return failing })
		c.Observe.Log = textLog(&log)
	})
	for _, failing = range []error{failing, failing, nil, nil, failing, errors.New("cannot either")} {
		if err := w.r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if bad, good := strings.Count(log.String(), "cannot be determined"), strings.Count(log.String(), "can be determined again"); bad != 3 || good != 1 {
		t.Errorf("%d and %d lines:\n%s", bad, good, log.String())
	}
}

func TestNewRefuses(t *testing.T) {
	initial := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	for rule, cfg := range map[string]Config{
		"no name":       {Sink: newServer(), Initial: initial},
		"no sink":       {Name: "n1", Initial: initial},
		"no initial":    {Name: "n1", Sink: newServer()},
		"another name":  {Name: "n1", Sink: newServer(), Initial: initial},
		"metrics twice": {Name: "other", Sink: newServer(), Initial: initial, Observe: observe.To{Metrics: broken{}}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", rule)
		}
	}
}

type broken struct{}

func (broken) Counter(string, string, ...string) (observe.Metric, error) {
	return nil, errors.New("taken")
}

func (broken) Gauge(string, string, ...string) (observe.Metric, error) {
	return nil, errors.New("taken")
}

func (broken) Histogram(string, string, []float64, ...string) (observe.Metric, error) {
	return nil, errors.New("taken")
}

func BenchmarkRound(b *testing.B) {
	w := &world{server: newServer()}
	w.host = &host{machine: Machine{Cores: 4, Memory: 8 << 30}}
	initial, err := Initial(Registration{Name: "n1"})
	if err != nil {
		b.Fatal(err)
	}
	images := Images(manyImages(500), 50)
	machine := func() (Machine, error) { return w.machine, nil }
	capacity, err := Capacity(Sizes{Machine: machine})
	if err != nil {
		b.Fatal(err)
	}
	r, err := New(Config{
		Name: "n1", Initial: initial, Sink: w.server, Seen: w.seen,
		Setters: []Setter{MachineInfo(machine), capacity, images, Pressure(nil), Ready()},
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := r.Report(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
