package podruntime

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// A step that is cut does not cut a start that has begun, but does not wait for one that hangs either.
func TestACutLeavesAStartToEnd(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		start   time.Duration // a start takes
		returns time.Duration // after the cut
		runs    bool
	}{
		{"a start that has begun ends well", 3 * time.Second, 2 * time.Second, true},
		{"a start that hangs is cut later", time.Hour, startGrace, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.engine.Inject("StartContainer", runtimetest.Delay(tt.start))
				p := pod(polite)
				ctx, cut := context.WithTimeout(t.Context(), time.Second)
				defer cut()
				begun := time.Now()
				_, err := n.Sync(ctx, p, runtime.SyncInput{Seen: n.look(p)})
				if took := time.Since(begun) - time.Second; !errors.Is(err, context.DeadlineExceeded) || took != tt.returns {
					t.Errorf("returned %v after the cut with %v", took, err)
				}
				seen := n.look(p)
				if seen.ContainersRunning() != tt.runs || slices.Contains(n.events, "Failed") || len(seen.Waiting) > 0 {
					t.Errorf("running %v, events %v, waiting %v", seen.ContainersRunning(), n.events, seen.Waiting)
				}
			})
		})
	}
}
