package observe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/kubeletkit/kubeletkit/observe"
)

// A journal for the debug page, and the same events in the log.
func ExampleJournal() {
	var journal observe.Journal
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	to := observe.To{
		Log:    log,
		Steps:  &journal,
		Events: observe.EventsTo(&journal, observe.LogEvents(log)),
	}

	// What a part does with it:
	pod := observe.Pod("shop", "web", "4711")
	_, step := to.Begin(context.Background(), pod, "pull", slog.String("image", "example.org/web:1"))
	step.End(errors.New("registry is away"))
	for range 3 {
		to.Event(observe.Event{About: pod, Warning: true, Reason: "BackOff", Message: "pulling again in a while"})
	}

	for _, e := range journal.Timeline("4711") {
		if e.Event {
			fmt.Printf("%s x%d: %s\n", e.Reason, e.Count, e.Message)
		} else {
			fmt.Printf("%s %s: %s\n", e.Step, e.Attrs["image"], e.Error)
		}
	}
	// Output:
	// level=WARN msg=event reason=BackOff message="pulling again in a while" pod=web namespace=shop uid=4711
	// level=WARN msg=event reason=BackOff message="pulling again in a while" pod=web namespace=shop uid=4711
	// level=WARN msg=event reason=BackOff message="pulling again in a while" pod=web namespace=shop uid=4711
	// pull example.org/web:1: registry is away
	// BackOff x3: pulling again in a while
}
