package prom

import (
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/observe"
)

// New makes instruments that reg shows. An instrument whose name is taken by another kind, other labels or another help
// text is an error.
func New(reg prometheus.Registerer) observe.Metrics { return metrics{reg} }

type metrics struct{ reg prometheus.Registerer }

func (m metrics) Counter(name, help string, labels ...string) (observe.Metric, error) {
	v, err := register(m.reg, name, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	if err != nil {
		return nil, err
	}
	return counter{v}, nil
}

func (m metrics) Gauge(name, help string, labels ...string) (observe.Metric, error) {
	v, err := register(m.reg, name, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
	if err != nil {
		return nil, err
	}
	return gauge{v}, nil
}

func (m metrics) Histogram(name, help string, buckets []float64, labels ...string) (observe.Metric, error) {
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	v, err := register(m.reg, name, prometheus.NewHistogramVec(opts, labels))
	if err != nil {
		return nil, err
	}
	return histogram{v}, nil
}

// register registers v, or finds the one that is registered already.
func register[V prometheus.Collector](reg prometheus.Registerer, name string, v V) (V, error) {
	err := reg.Register(v)
	if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := taken.ExistingCollector.(V); ok {
			return same, nil
		}
	}
	if err != nil {
		return v, fmt.Errorf("register metric %s: %w", name, err)
	}
	return v, nil
}

// Label values come from outside, an exit reason of a container for example, and the library panics at those that are
// not UTF-8. A wrong number of them is a mistake in the code that records, and does panic.
func clean(labels []string) []string {
	for i, l := range labels {
		if fixed := strings.ToValidUTF8(l, "\uFFFD"); fixed != l {
			labels = append([]string(nil), labels...)
			labels[i] = fixed
		}
	}
	return labels
}

type counter struct{ *prometheus.CounterVec }

// Record adds v. A counter only grows: a negative v counts as nothing.
func (c counter) Record(v float64, labels ...string) {
	c.WithLabelValues(clean(labels)...).Add(max(v, 0))
}
func (c counter) Forget(labels ...string) { c.DeleteLabelValues(clean(labels)...) }

type gauge struct{ *prometheus.GaugeVec }

func (g gauge) Record(v float64, labels ...string) { g.WithLabelValues(clean(labels)...).Set(v) }
func (g gauge) Forget(labels ...string)            { g.DeleteLabelValues(clean(labels)...) }

type histogram struct{ *prometheus.HistogramVec }

func (h histogram) Record(v float64, labels ...string) {
	h.WithLabelValues(clean(labels)...).Observe(v)
}
func (h histogram) Forget(labels ...string) { h.DeleteLabelValues(clean(labels)...) }
