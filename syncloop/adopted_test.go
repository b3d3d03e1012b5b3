package syncloop_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// remembering shows an early look for as long as that will do.
type remembering struct {
	early runtime.Pod
	now   *podruntime.Runtime
}

func (r remembering) Pod(ctx context.Context, uid types.UID, after time.Time) (runtime.Pod, error) {
	if !r.early.At.Before(after) {
		return r.early, nil
	}
	return r.now.Pod(ctx, uid)
}

// phases are all that were told.
type phases struct{ told []v1.PodPhase }

func (p *phases) UpdateStatus(_ context.Context, _ *v1.Pod, s v1.PodStatus) error {
	p.told = append(p.told, s.Phase)
	return nil
}
func (*phases) Finished(context.Context, *v1.Pod) error { return nil }

// The list of what was there before is shallow: it knows that a container has ended, not how. No phase comes of that, also
// when the look that knows more is older than the list.
func TestAdoptedPodKeepsItsExitCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "1"},
			Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{
				{Name: "work", Image: "job:1", Command: []string{"sh", "-c", "exit 7"}},
			}},
		}
		engine := runtimetest.New(runtime.Image{ID: "job:1", Tags: []string{"job:1"}})
		pods, err := podruntime.New(podruntime.Config{Engine: engine, LogRoot: t.TempDir()})
		if err == nil {
			_, err = pods.Sync(t.Context(), pod, runtime.SyncInput{Seen: runtime.Pod{PodRef: runtime.PodRef{UID: "1"}}})
		}
		var early runtime.Pod
		if err == nil {
			early, err = pods.Pod(t.Context(), "1")
		}
		if err != nil || len(early.Containers) != 1 || early.Containers[0].ExitCode != 7 {
			t.Fatal(early, err)
		}
		time.Sleep(time.Second)

		sink := &phases{}
		loop, err := syncloop.New(syncloop.Config{
			Sources: map[string]syncloop.PodSource{"mine": one{pod}}, Runtime: pods, Sink: sink, States: remembering{early, pods},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := loop.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if len(sink.told) == 0 || slices.Contains(sink.told, v1.PodSucceeded) || sink.told[len(sink.told)-1] != v1.PodFailed {
			t.Errorf("told %v", sink.told)
		}
	})
}
