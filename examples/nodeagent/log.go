package main

import (
	"context"
	"io"
	"log/slog"
	"strconv"
)

// logger writes structured lines. Under journald, which keeps the time itself, a line begins with its priority instead.
func logger(w io.Writer, verbosity int, journald bool) *slog.Logger {
	level := slog.LevelInfo
	switch {
	case verbosity <= 0:
		level = slog.LevelError
	case verbosity == 1:
		level = slog.LevelWarn
	case verbosity >= 4:
		level = slog.LevelDebug
	}
	o := &slog.HandlerOptions{Level: level}
	if !journald {
		return slog.New(slog.NewTextHandler(w, o))
	}
	o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return a
	}
	var p priorities
	for i, n := range []int{7, 6, 4, 3} { // debug, info, warning, error as syslog counts
		p[i] = slog.NewTextHandler(prefixed{w, "<" + strconv.Itoa(n) + ">"}, o)
	}
	return slog.New(p)
}

// priorities has a handler for each level.
type priorities [4]slog.Handler

func place(l slog.Level) int { return int(min(max((l-slog.LevelDebug)/4, 0), 3)) }

func (p priorities) Enabled(ctx context.Context, l slog.Level) bool { return p[0].Enabled(ctx, l) }
func (p priorities) Handle(ctx context.Context, r slog.Record) error {
	return p[place(r.Level)].Handle(ctx, r)
}

func (p priorities) WithAttrs(attrs []slog.Attr) slog.Handler {
	for i := range p {
		p[i] = p[i].WithAttrs(attrs)
	}
	return p
}

func (p priorities) WithGroup(name string) slog.Handler {
	for i := range p {
		p[i] = p[i].WithGroup(name)
	}
	return p
}

// prefixed puts something before each write; a handler writes a line at a time.
type prefixed struct {
	w      io.Writer
	prefix string
}

func (p prefixed) Write(b []byte) (int, error) {
	if _, err := p.w.Write(append([]byte(p.prefix), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}
