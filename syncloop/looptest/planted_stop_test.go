package looptest_test

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/looptest"
)

func stopFaults() map[string]fault {
	return map[string]fault{
		"stop does nothing": {
			"a stopped pod runs no more", "answer nil only when nothing of the pod runs",
			stopped(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.Pod, runtime.Termination) error { return nil }),
		},
		"stop never ends": {
			"a stopped pod runs no more", "answered after",
			stopped(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.Pod, runtime.Termination) error {
				return errors.New("no such region")
			}),
		},
		"a stop in progress is not listed": {
			"a stopped pod runs no more", "when Stop answers runtime.ErrInProgress",
			stopped(func(context.Context, syncloop.Runtime, *v1.Pod, runtime.Pod, runtime.Termination) error {
				return runtime.ErrInProgress
			}),
		},
		"a stopped pod comes back": {
			"a stopped pod runs no more", "runs again",
			func(f *looptest.Fixture) {
				var gone sync.Map
				bend(func(r syncloop.Runtime) bent {
					return bent{
						stop: func(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
							gone.Store(seen.UID, pod)
							return r.Stop(ctx, pod, seen, how)
						},
						pods: func(ctx context.Context) ([]runtime.Pod, error) {
							gone.Range(func(uid, pod any) bool {
								id, _ := uid.(types.UID)
								spec, _ := pod.(*v1.Pod)
								if seen, err := r.Pod(ctx, id); err == nil {
									_, _ = r.Sync(ctx, spec, runtime.SyncInput{Seen: seen})
								}
								return true
							})
							return r.Pods(ctx)
						},
					}
				})(f)
			},
		},
		"a second stop is an error": {
			"a stop may be repeated, of what is gone too", "that had been purged answered the error",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				if !exists(seen) {
					return runtime.ErrNotFound
				}
				return r.Stop(ctx, pod, seen, how)
			}),
		},
		"stop needs the spec": {
			"a stop without the spec ends the pod", "no spec",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				if pod == nil {
					return errors.New("no spec")
				}
				return r.Stop(ctx, pod, seen, how)
			}),
		},
		"stop gives no grace": {
			"a stop gives the grace and no more", "was ended after",
			stopped(func(ctx context.Context, r syncloop.Runtime, _ *v1.Pod, seen runtime.Pod, _ runtime.Termination) error {
				return r.Remove(ctx, seen.UID, runtime.Purge)
			}),
		},
		"a shorter grace is not heard": {
			"a stop gives the grace and no more", "which Termination.Grace says",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				if *pod.Spec.TerminationGracePeriodSeconds == 3600 {
					how.Grace = 0
				}
				return r.Stop(ctx, pod, seen, how)
			}),
		},
		"stop does not heed its context": {
			"a stop that is cut is gone on with, and made shorter", "Stop had not returned",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				ctx, cancel := deaf(ctx)
				defer cancel()
				return r.Stop(ctx, pod, seen, how)
			}),
		},
		"a stop that is cut kills": {
			"a stop that is cut is gone on with, and made shorter", "was killed when the context of Stop ended",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
				err := r.Stop(ctx, pod, seen, how)
				if ctx.Err() != nil {
					err = r.Remove(context.WithoutCancel(ctx), seen.UID, runtime.Purge)
				}
				return err
			}),
		},
		"the first grace stays": {
			"a stop that is cut is gone on with, and made shorter", "let a later Stop with a shorter Grace count",
			stopped(func(ctx context.Context, r syncloop.Runtime, pod *v1.Pod, seen runtime.Pod, _ runtime.Termination) error {
				return r.Stop(ctx, pod, seen, runtime.Termination{})
			}),
		},
		"release removes": {
			"release leaves what ended to be read", "keep what ended",
			removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, _ runtime.Removal) error {
				return r.Remove(ctx, uid, runtime.Purge)
			}),
		},
		"renew removes nothing": {
			"renew lets a pod begin anew", "show nothing of the pod",
			removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, what runtime.Removal) error {
				if what == runtime.Renew {
					return nil
				}
				return r.Remove(ctx, uid, what)
			}),
		},
		"a renewed pod is never started": {
			"renew lets a pod begin anew", "there is no container a",
			func(f *looptest.Fixture) {
				var over sync.Map
				bend(func(r syncloop.Runtime) bent {
					return bent{
						remove: func(ctx context.Context, uid types.UID, what runtime.Removal) error {
							over.Store(uid, true)
							return r.Remove(ctx, uid, what)
						},
						sync: func(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
							if _, is := over.Load(pod.UID); is {
								return runtime.SyncResult{}, nil
							}
							return r.Sync(ctx, pod, in)
						},
					}
				})(f)
			},
		},
		"purge removes nothing": {
			"purge leaves nothing", "show nothing of the pod",
			removed(func(context.Context, syncloop.Runtime, types.UID, runtime.Removal) error { return nil }),
		},
		"a removal does not heed its context": {
			"a removal may be repeated, of what is gone too", "Remove had not returned",
			removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, what runtime.Removal) error {
				if ctx.Err() != nil {
					own, cancel := deaf(ctx)
					defer cancel()
					<-own.Done()
				}
				return r.Remove(ctx, uid, what)
			}),
		},
		"a removal that was cut is taken for done": {
			"a removal may be repeated, of what is gone too", "show nothing of the pod",
			func(f *looptest.Fixture) {
				var done sync.Map
				removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, what runtime.Removal) error {
					if _, known := done.LoadOrStore(uid, true); known {
						return nil
					}
					return r.Remove(ctx, uid, what)
				})(f)
			},
		},
		"a second removal is an error": {
			"a removal may be repeated, of what is gone too", "answered the error not found",
			removed(func(ctx context.Context, r syncloop.Runtime, uid types.UID, what runtime.Removal) error {
				if seen, err := r.Pod(ctx, uid); err != nil || !exists(seen) {
					return errors.Join(err, runtime.ErrNotFound)
				}
				return r.Remove(ctx, uid, what)
			}),
		},
	}
}
