package syncloop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// broom notes when it swept.
type broom struct{ at []time.Time }

func (b *broom) Sweep(context.Context, func(types.UID) bool) error {
	b.at = append(b.at, time.Now())
	return nil
}

type late time.Duration

func (d late) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	time.Sleep(time.Duration(d))
	set(nil, true)
	<-ctx.Done()
	return nil
}

type quiet struct{}

func (quiet) UpdateStatus(context.Context, *v1.Pod, v1.PodStatus) error { return nil }
func (quiet) Finished(context.Context, *v1.Pod) error                   { return nil }

// Leftovers of a life before are swept soon after all sources have spoken, also when they speak while the first list is
// being made, and not only at the resync.
func TestLeftoversAreSweptSoonAfterTheStart(t *testing.T) {
	for _, source := range []late{0, late(time.Second / 2), late(time.Second), late(3 * time.Second / 2), late(20 * time.Second)} {
		t.Run(time.Duration(source).String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := runtimetest.New()
				engine.Inject("ListSandboxes", runtimetest.Delay(time.Second))
				pods, err := podruntime.New(podruntime.Config{Engine: engine})
				if err != nil {
					t.Fatal(err)
				}
				sweeper := &broom{}
				l, err := syncloop.New(syncloop.Config{
					Sources: map[string]syncloop.PodSource{"file": source}, Runtime: pods, Sink: quiet{},
					Sweepers: []syncloop.Sweeper{sweeper}, Resync: time.Hour,
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				start := time.Now()
				if err := l.Run(ctx); err != nil {
					t.Fatal(err)
				}
				complete := start.Add(time.Duration(source))
				if len(sweeper.at) == 0 || sweeper.at[0].Sub(complete) > 5*time.Second {
					t.Errorf("the source was complete at %v, swept at %v, after the start at %v", complete, sweeper.at, start)
				}
			})
		})
	}
}
