package observe

import (
	"errors"
	"testing"
)

func TestTheZeroToIsSilent(t *testing.T) {
	var to To
	to.Logger().Info("nobody hears this")
	to.Event(Event{Reason: "nor this"})
	ctx, s := to.Begin(t.Context(), web, "step")
	if ctx != t.Context() {
		t.Error("another context")
	}
	s.Note()
	s.End(nil)
	ins := to.Instruments()
	for _, m := range []Metric{ins.Counter("c", ""), ins.Gauge("g", ""), ins.Histogram("h", "", nil)} {
		m.Record(1, "any", "labels")
		m.Forget()
	}
	if ins.Err != nil {
		t.Error(ins.Err)
	}
}

// refusing are Metrics that make nothing.
type refusing struct{}

func (refusing) Counter(name, _ string, _ ...string) (Metric, error) { return nil, errors.New(name) }

func (refusing) Gauge(name, _ string, _ ...string) (Metric, error) { return nil, errors.New(name) }

func (refusing) Histogram(name, _ string, _ []float64, _ ...string) (Metric, error) {
	return nil, errors.New(name)
}

func TestInstrumentsKeepTheFirstError(t *testing.T) {
	ins := To{Metrics: refusing{}}.Instruments()
	ins.Counter("first", "").Record(1)
	ins.Gauge("second", "").Record(1)
	ins.Histogram("third", "", nil).Record(1)
	if ins.Err == nil || ins.Err.Error() != "first" {
		t.Errorf("error %v, want the first", ins.Err)
	}
}
