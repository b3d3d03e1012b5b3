package witness

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/kubeletkit/kubeletkit/observe"
)

func TestNotes(t *testing.T) {
	n := &Notes{}
	to := n.Observe()
	to.Log.Debug("nothing")
	to.Log.With("part", "x").Info("read", "file", "a b")
	to.Log.Warn("broken", slog.Int("times", 2))
	to.Event(observe.Event{Reason: "Broken"})
	if got, want := n.Lines(""), []string{"INFO read file=a b", "WARN broken times=2"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	if got := n.Lines("WARN"); len(got) != 1 {
		t.Errorf("warnings %q", got)
	}
	if got := n.Events(); len(got) != 1 || got[0].Reason != "Broken" {
		t.Errorf("events %v", got)
	}
}
