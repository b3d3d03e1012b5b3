// Package witness is for tests: it notes what a part logs and which events it tells.
package witness

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/kubeletkit/kubeletkit/observe"
)

// Notes are a slog.Handler and an observe.Events. The zero value notes lines of at least Info. All methods are safe for
// concurrent use; Least is set before the first call.
type Notes struct {
	Least slog.Level // lines below it are not noted

	mu     sync.Mutex // guards the rest
	lines  []string
	events []observe.Event
}

// Observe is what to give to the part.
func (n *Notes) Observe() observe.To { return observe.To{Log: slog.New(n), Events: n} }

// Lines are those that have that part in them, as "LEVEL message key=value".
func (n *Notes) Lines(part string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.lines), func(l string) bool { return !strings.Contains(l, part) })
}

// Events are all events told.
func (n *Notes) Events() []observe.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.events)
}

// Event notes an event.
func (n *Notes) Event(e observe.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

// Enabled says whether a line of that level is noted.
func (n *Notes) Enabled(_ context.Context, l slog.Level) bool { return l >= n.Least }

// WithAttrs forgets the attributes.
func (n *Notes) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup forgets the group.
func (n *Notes) WithGroup(string) slog.Handler { return n }

// Handle notes a line.
func (n *Notes) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.Key + "=" + a.Value.String(); return true })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
	return nil
}
