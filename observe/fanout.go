package observe

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// EventsTo gives each event to all of them, in order. Nil ones are left out; of none it is nil.
func EventsTo(all ...Events) Events {
	all = slices.DeleteFunc(slices.Clone(all), func(e Events) bool { return e == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return events(all)
}

type events []Events

func (all events) Event(e Event) {
	for _, to := range all {
		to.Event(e)
	}
}

// StepsTo lets all of them hear of each step, in order; the context goes from one to the next. Nil ones are left out; of
// none it is nil.
func StepsTo(all ...Steps) Steps {
	all = slices.DeleteFunc(slices.Clone(all), func(s Steps) bool { return s == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return steps(all)
}

type steps []Steps

func (all steps) Begin(ctx context.Context, pod Ref, name string, attrs ...slog.Attr) (context.Context, Step) {
	begun := make(stepOfAll, len(all))
	for i, to := range all {
		ctx, begun[i] = to.Begin(ctx, pod, name, attrs...) //nolint:fatcontext // each goes on from what the one before put in
	}
	return ctx, begun
}

type stepOfAll []Step

func (all stepOfAll) Note(attrs ...slog.Attr) {
	for _, s := range all {
		s.Note(attrs...)
	}
}

// End ends them in the opposite order of their beginning, as nested spans do.
func (all stepOfAll) End(err error) {
	for _, s := range slices.Backward(all) {
		s.End(err)
	}
}

// LogEvents writes each event as a log line "event": warnings at Warn, the others at Info.
func LogEvents(log *slog.Logger) Events { return logged{log} }

type logged struct{ log *slog.Logger }

func (l logged) Event(e Event) {
	level := slog.LevelInfo
	if e.Warning {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("reason", e.Reason), slog.String("message", e.Message)}
	attrs = append(attrs, e.About.attrs()...)
	l.log.LogAttrs(context.Background(), level, "event", attrs...)
}

// attrs name an object with the keys that all log lines use.
func (r Ref) attrs() (out []slog.Attr) {
	kind := strings.ToLower(r.Kind)
	if kind == "" {
		kind = "object"
	}
	for _, a := range []slog.Attr{
		slog.String(kind, r.Name),
		slog.String("namespace", r.Namespace),
		slog.String("uid", r.UID),
		slog.String("field", r.FieldPath),
	} {
		if a.Value.String() != "" {
			out = append(out, a)
		}
	}
	return out
}
