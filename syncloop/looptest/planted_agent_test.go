package looptest_test

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/looptest"
)

func agentFaults() map[string]fault {
	stopsKnown := func(r syncloop.Runtime) bent {
		return bent{stop: func(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
			if pod == nil {
				return nil
			}
			return r.Stop(ctx, pod, seen, how)
		}}
	}
	return map[string]fault{
		"what the last process made is unknown to the next": {"the next agent finds what the last one left", "in the list", bend(forgetful)},
		"what the last process made is begun anew":          {"the next agent finds what the last one left", "keep their IDs", bendNext(begins)},
		"what the last process began is made again": {
			"the next agent goes on where the last one was cut", "find what the one before it has made", (&doubled{cut: map[types.UID]bool{}}).plant,
		},
		"what nobody knows goes on": {"the next agent ends what nobody knows", "answer nil only when nothing of the pod runs", bendNext(stopsKnown)},
		"lists are from memory": {
			"what happens is heard by listing", "did not tell",
			func(f *looptest.Fixture) {
				var first sync.Map
				listed(func(p *runtime.Pod) {
					if was, known := first.Load(p.UID); known {
						*p, _ = was.(runtime.Pod)
					} else if p.ContainersRunning() {
						first.Store(p.UID, own(*p))
					}
				})(f)
			},
		},
		"the notifier is silent": {
			"what happens is told by the notifier", "the notifier told of none",
			func(f *looptest.Fixture) { f.Notifier = silent{} },
		},
		"strangers go on": {"a loop takes a pod through its life", "a pod that no source knows is ended and removed", bend(stopsKnown)},
		"the loop is kept busy": {
			"a loop takes a pod through its life", "the runtime says at each step",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				result, err := r.Sync(ctx, pod, in)
				result.Acted = true
				return result, err
			}),
		},
	}
}
