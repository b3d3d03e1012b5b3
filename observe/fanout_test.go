package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
)

// recorder is a Steps and an Events that writes down what it hears.
type recorder struct {
	name string
	to   *[]string
}

func (r recorder) say(format string, args ...any) {
	*r.to = append(*r.to, r.name+" "+fmt.Sprintf(format, args...))
}

func (r recorder) Event(e Event) { r.say("event %s", e.Reason) }

func (r recorder) Begin(ctx context.Context, _ Ref, step string, attrs ...slog.Attr) (context.Context, Step) {
	outer, _ := ctx.Value(recorder{}).(string)
	r.say("begin %s %v in %q", step, attrs, outer)
	return context.WithValue(ctx, recorder{}, outer+r.name), r
}

func (r recorder) Note(attrs ...slog.Attr) { r.say("note %v", attrs) }
func (r recorder) End(err error)           { r.say("end %v", err) }

func TestFanOut(t *testing.T) {
	var heard []string
	a, b := recorder{"a", &heard}, recorder{"b", &heard}
	to := To{Events: EventsTo(a, nil, b), Steps: StepsTo(nil, a, b)}
	to.Event(Event{Reason: "r"})
	ctx, s := to.Begin(t.Context(), web, "pull", slog.Int("n", 1))
	s.Note(slog.Int("n", 2))
	s.End(errors.New("broken"))
	want := []string{
		"a event r", "b event r",
		`a begin pull [n=1] in ""`, `b begin pull [n=1] in "a"`,
		"a note [n=2]", "b note [n=2]",
		"b end broken", "a end broken",
	}
	if !slices.Equal(heard, want) {
		t.Errorf("heard %q\nwant %q", heard, want)
	}
	if ctx.Value(recorder{}) != "ab" {
		t.Error("the context does not carry what both put in")
	}
}

func TestFanOutOfFew(t *testing.T) {
	if EventsTo() != nil || EventsTo(nil, nil) != nil || StepsTo(nil) != nil {
		t.Error("nobody listens, but it is not nil")
	}
	var heard []string
	a := recorder{"a", &heard}
	if EventsTo(nil, a) != Events(a) || StepsTo(a) != Steps(a) {
		t.Error("one listener is not handed over as it is")
	}
}

func TestLogEvents(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	events := LogEvents(log)
	field := web
	field.FieldPath = "spec.containers{app}"
	events.Event(Event{About: field, Reason: "Started", Message: "it runs"})
	events.Event(Event{About: Ref{Kind: "Node", Name: "n1"}, Warning: true, Reason: "Rebooted"})
	events.Event(Event{Reason: "Odd", About: Ref{Name: "x"}})
	want := `level=INFO msg=event reason=Started message="it runs" pod=web namespace=ns uid=u1 field=spec.containers{app}
level=WARN msg=event reason=Rebooted message="" node=n1
level=INFO msg=event reason=Odd message="" object=x
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
