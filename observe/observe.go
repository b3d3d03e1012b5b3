package observe

import (
	"context"
	"log/slog"
)

// To bundles the four listeners. The zero value is silent; every field may be nil.
type To struct {
	Log     *slog.Logger
	Events  Events
	Steps   Steps
	Metrics Metrics
}

// Ref names the object an event is about, in the terms of an API object reference.
type Ref struct{ Kind, Namespace, Name, UID, FieldPath string }

// Pod is the Ref of a pod.
func Pod(namespace, name, uid string) Ref {
	return Ref{Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
}

// Event is what people read under "kubectl describe".
type Event struct {
	About           Ref
	Warning         bool
	Reason, Message string
	Annotations     map[string]string
}

// Events takes events. It never blocks and drops when full.
type Events interface{ Event(Event) }

// Steps hears of each step of a pod's way; the debug page and spans are made of it.
type Steps interface {
	Begin(ctx context.Context, pod Ref, step string, attrs ...slog.Attr) (context.Context, Step)
}

// Step is one step under way. Note tells progress; End closes it, once.
type Step interface {
	Note(attrs ...slog.Attr)
	End(err error)
}

// Metrics makes instruments. Names are full metric names, values in the base unit the name ends in.
// Asking twice for one name with the same labels gives the same instrument or one that adds to it.
type Metrics interface {
	Counter(name, help string, labels ...string) (Metric, error)
	Gauge(name, help string, labels ...string) (Metric, error)
	Histogram(name, help string, buckets []float64, labels ...string) (Metric, error)
}

// Metric is one instrument; values are given in the order of its labels. Record adds to a counter, sets
// a gauge, and observes for a histogram. Forget drops the series of these label values.
type Metric interface {
	Record(v float64, labels ...string)
	Forget(labels ...string)
}

// Logger is t.Log, or a logger that drops everything.
func (t To) Logger() *slog.Logger {
	if t.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return t.Log
}

// Event tells an event if anyone listens.
func (t To) Event(e Event) {
	if t.Events != nil {
		t.Events.Event(e)
	}
}

// Begin is Steps.Begin that also works on the zero To.
func (t To) Begin(ctx context.Context, pod Ref, step string, attrs ...slog.Attr) (context.Context, Step) {
	if t.Steps == nil {
		return ctx, silent{}
	}
	return t.Steps.Begin(ctx, pod, step, attrs...)
}

// Instruments makes the instruments of one part. It keeps the first error, so that a part asks for all
// of its instruments and looks at Err once. Without Metrics it makes silent ones.
type Instruments struct {
	Metrics Metrics
	Err     error
}

// Instruments of this To.
func (t To) Instruments() *Instruments { return &Instruments{Metrics: t.Metrics} }

// Counter is Metrics.Counter.
func (i *Instruments) Counter(name, help string, labels ...string) Metric {
	return i.keep(func(m Metrics) (Metric, error) { return m.Counter(name, help, labels...) })
}

// Gauge is Metrics.Gauge.
func (i *Instruments) Gauge(name, help string, labels ...string) Metric {
	return i.keep(func(m Metrics) (Metric, error) { return m.Gauge(name, help, labels...) })
}

// Histogram is Metrics.Histogram.
func (i *Instruments) Histogram(name, help string, buckets []float64, labels ...string) Metric {
	return i.keep(func(m Metrics) (Metric, error) { return m.Histogram(name, help, buckets, labels...) })
}

func (i *Instruments) keep(ask func(Metrics) (Metric, error)) Metric {
	if i.Metrics == nil {
		return silent{}
	}
	m, err := ask(i.Metrics)
	if err != nil {
		if i.Err == nil {
			i.Err = err
		}
		return silent{}
	}
	return m
}

// silent is a Step and a Metric that nobody hears.
type silent struct{}

func (silent) Note(...slog.Attr)         {}
func (silent) End(error)                 {}
func (silent) Record(float64, ...string) {}
func (silent) Forget(...string)          {}
