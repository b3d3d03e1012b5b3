package looptest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/looptest"
)

func syncFaults() map[string]fault {
	var silence, coming sync.Map
	return map[string]fault{
		"nothing is done": {
			"a pod comes to run", "there is no container a",
			synced(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.SyncInput) (runtime.SyncResult, error) {
				return runtime.SyncResult{}, nil
			}),
		},
		"more is to be done, and nobody told": {
			"a pod comes to run", "Nobody calls Sync again before",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if _, second := silence.LoadOrStore(pod.UID, true); !second {
					return runtime.SyncResult{}, nil
				}
				return r.Sync(ctx, pod, in)
			}),
		},
		"it cannot be done": {
			"a pod comes to run", "mend what the error says",
			synced(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.SyncInput) (runtime.SyncResult, error) {
				return runtime.SyncResult{}, errors.New("out of machines")
			}),
		},
		"what comes up is not listed": {
			"a pod comes to run", "no list showed that",
			func(f *looptest.Fixture) {
				start := time.Now()
				bend(func(r syncloop.Runtime) bent {
					return bent{
						sync: func(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
							_, err := r.Sync(ctx, pod, in)
							coming.Store(pod.UID, true)
							return runtime.SyncResult{}, err
						},
						pods: func(context.Context) ([]runtime.Pod, error) { return nil, nil },
						pod: func(ctx context.Context, uid types.UID) (runtime.Pod, error) {
							p, err := r.Pod(ctx, uid)
							if time.Since(start) < time.Second {
								p.Containers, p.Sandboxes = nil, nil
							}
							return p, err
						},
					}
				})(f)
			},
		},
		"each step says that it acted": {
			"a pod at rest is left alone", "set SyncResult.Acted only when",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				result, err := r.Sync(ctx, pod, in)
				result.Acted = true
				return result, err
			}),
		},
		"each step is to be taken again at once": {
			"a pod at rest is left alone", "leave RetryAt zero",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				at := time.Now()
				result, err := r.Sync(ctx, pod, in)
				result.RetryAt = at.Add(-time.Millisecond)
				return result, err
			}),
		},
		"a pod that exists already is an error": {
			"a pod at rest is left alone", "is no error",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if exists(in.Seen) {
					return runtime.SyncResult{}, runtime.ErrInUse
				}
				return r.Sync(ctx, pod, in)
			}),
		},
		"each step begins anew": {
			"a pod at rest is left alone", "set SyncResult.Acted only when",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if in.Seen.ContainersRunning() {
					_ = r.Stop(ctx, pod, in.Seen, runtime.Termination{})
					_ = r.Remove(ctx, pod.UID, runtime.Purge)
				}
				in.Seen = runtime.Pod{PodRef: runtime.PodRef{UID: pod.UID}, At: time.Now()}
				result, err := r.Sync(ctx, pod, in)
				return result, err
			}),
		},
		"notes are written into the pod": {
			"a pod that is handed in is not changed", "take a DeepCopy",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				pod.Annotations = map[string]string{"machine": "7"}
				return r.Sync(ctx, pod, in)
			}),
		},
		"steps do not heed their context": {
			"a sync that is cut is gone on with", "Sync had not returned",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				own, cancel := deaf(ctx)
				defer cancel()
				<-own.Done()
				return r.Sync(ctx, pod, in)
			}),
		},
		"what was cut is made again": {
			"a sync that is cut is gone on with", "find what the one before it has made", (&doubled{cut: map[types.UID]bool{}}).plant,
		},
		"what ended stays so": {
			"what ended is started again as its restart policy says", "still the instance",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if exists(in.Seen) && !in.Seen.ContainersRunning() {
					return runtime.SyncResult{}, nil
				}
				return r.Sync(ctx, pod, in)
			}),
		},
		"restarts are not counted": {
			"what ended is started again as its restart policy says", "let Restarts be how many",
			shown(true, each(func(c *runtime.Container) { c.Restarts = 0 })),
		},
		"all instances of a container have one ID": {
			"what ended is started again as its restart policy says", "another instance under the same ID",
			shown(true, each(func(c *runtime.Container) { c.ID = string(c.Pod.UID) + c.Name })),
		},
		"the oldest instance comes first": {
			"what ended is started again as its restart policy says", "show the newest instance first",
			shown(true, func(p *runtime.Pod) { slices.Reverse(p.Containers) }),
		},
		"all that ends is started again": {
			"what ended for good stays ended", "start nothing again",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				other := pod.DeepCopy()
				other.Spec.RestartPolicy = v1.RestartPolicyAlways
				return r.Sync(ctx, other, in)
			}),
		},
		"every failure is exit code 1": {
			"what ended for good stays ended", "its code is 1",
			shown(true, each(func(c *runtime.Container) { c.ExitCode = min(c.ExitCode, 1) })),
		},
		"nobody knows when it ended": {
			"what ended for good stays ended", "finished at 0001-01-01",
			shown(true, each(func(c *runtime.Container) { c.Finished = time.Time{} })),
		},
		"liveness probes are not heeded": {
			"what its liveness probe gives up is started again", "whose liveness probe fails",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				in.ProbeResults = nil
				return r.Sync(ctx, pod, in)
			}),
		},
		"sizes never change, and nobody is told": {
			"new sizes come to rest", "Applied shows",
			shown(true, func(p *runtime.Pod) {
				p.Applied = map[string]runtime.Sizes{"a": {CPURequest: 100, CPULimit: 200, MemoryRequest: 64 << 20, MemoryLimit: 128 << 20}}
			}),
		},
		"for new sizes a pod is made anew": {
			"new sizes come to rest", "keep their IDs",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				if _, done := coming.LoadOrStore(fmt.Sprint(pod.UID, pod.Generation), true); !done && exists(in.Seen) {
					_ = r.Stop(ctx, pod, in.Seen, runtime.Termination{})
					return runtime.SyncResult{Acted: true}, r.Remove(ctx, pod.UID, runtime.Purge)
				}
				return r.Sync(ctx, pod, in)
			}),
		},
		"what fails is tried without end": {
			"what cannot be started is told and tried again later", "steps in a row say that they acted",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				result, err := r.Sync(ctx, pod, in)
				result.Acted = result.Acted || len(in.Seen.Waiting) > 0
				return result, err
			}),
		},
		"what fails is not told": {
			"what cannot be started is told and tried again later", "has no reason for waiting",
			shown(true, func(p *runtime.Pod) { p.Waiting = nil }),
		},
		"what fails is not tried again": {
			"what cannot be started is told and tried again later", "set RetryAt, or answer an error",
			synced(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
				result, err := r.Sync(ctx, pod, in)
				result.RetryAt = time.Time{}
				return result, err
			}),
		},
		"pods are known by their names": {
			"pods of one name are told apart by uid", "know pods by their uid", synced((&named{is: map[string]*v1.Pod{}}).sync),
		},
		"one ends, all end": {
			"pods are worked on side by side", "was not touched and is another",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				all, err := r.Pods(ctx)
				for _, p := range all {
					err = errors.Join(err, r.Stop(ctx, nil, p, how))
				}
				return err
			}),
		},
	}
}
