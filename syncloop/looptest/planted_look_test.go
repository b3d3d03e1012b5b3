package looptest_test

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func lookFaults() map[string]fault {
	return map[string]fault{
		"a pod that does not exist is an error": {
			"a look at a pod that does not exist is empty", "answered the error not found",
			bend(func(r syncloop.Runtime) bent {
				return bent{pod: func(ctx context.Context, uid types.UID) (runtime.Pod, error) {
					p, err := r.Pod(ctx, uid)
					if err == nil && !exists(p) {
						err = runtime.ErrNotFound
					}
					return p, err
				}}
			}),
		},
		"a pod that does not exist has no uid": {
			"a look at a pod that does not exist is empty", "runtime.Pod{PodRef: runtime.PodRef{UID: uid}",
			shown(false, func(p *runtime.Pod) {
				if !exists(*p) {
					p.UID = ""
				}
			}),
		},
		"looks have no time": {
			"a look says when it was taken", "leaves At zero",
			shown(false, func(p *runtime.Pod) { p.At = time.Time{} }),
		},
		"looks are from memory": {
			"a look says when it was taken", "look anew",
			shown(false, func(p *runtime.Pod) { p.At = p.At.Add(-time.Second) }),
		},
		"times of looks are by the wall clock": {
			"a look says when it was taken", "no monotonic reading",
			shown(false, func(p *runtime.Pod) { p.At = time.Unix(0, time.Now().UnixNano()) }),
		},
		"names of pods are lost": {
			"a look shows what was asked for", "is seen as",
			shown(true, func(p *runtime.Pod) { p.Name = "" }),
		},
		"there is no sandbox": {
			"a look shows what was asked for", "make one up",
			shown(true, func(p *runtime.Pod) { p.Sandboxes = nil }),
		},
		"IDs are names": {
			"a look shows what was asked for", "no ID, or that of another",
			shown(true, each(func(c *runtime.Container) { c.ID = "app" })),
		},
		"images are lost": {
			"a look shows what was asked for", "has Image, which is not its",
			shown(true, each(func(c *runtime.Container) { c.Image = "" })),
		},
		"containers lie in no sandbox": {
			"a look shows what was asked for", "has SandboxID",
			shown(true, each(func(c *runtime.Container) { c.SandboxID = "" })),
		},
		"lists have other IDs": {
			"a look and the list show the same", "the same IDs and states",
			listed(each(func(c *runtime.Container) { c.ID = c.ID[:3] + c.Name })),
		},
		"lists are in another order": {
			"a look and the list show the same", "in the same order",
			listed(func(p *runtime.Pod) { slices.Reverse(p.Containers) }),
		},
		"lists have no names": {
			"a look and the list show the same", "its uid, namespace and name",
			listed(func(p *runtime.Pod) { p.Namespace = "" }),
		},
		"lists leave one out": {
			"the list has every pod once", "0 times",
			bend(func(r syncloop.Runtime) bent {
				return bent{pods: func(ctx context.Context) ([]runtime.Pod, error) {
					all, err := r.Pods(ctx)
					return all[:min(len(all), 2)], err
				}}
			}),
		},
		"lists show one twice": {
			"the list has every pod once", "2 times",
			bend(func(r syncloop.Runtime) bent {
				return bent{pods: func(ctx context.Context) ([]runtime.Pod, error) {
					all, err := r.Pods(ctx)
					return append(all, all...), err
				}}
			}),
		},
		"a look that was cut shows nothing": {
			"a look that is cut is an error or whole", "Pod with a context that ended",
			bend(func(r syncloop.Runtime) bent {
				return bent{pod: func(ctx context.Context, uid types.UID) (runtime.Pod, error) {
					p, err := r.Pod(ctx, uid)
					if ctx.Err() != nil {
						err = nil
					}
					return p, err
				}}
			}),
		},
		"a list that was cut shows nothing": {
			"a look that is cut is an error or whole", "Pods with a context that ended",
			bend(func(r syncloop.Runtime) bent {
				return bent{pods: func(ctx context.Context) ([]runtime.Pod, error) {
					all, err := r.Pods(ctx)
					if ctx.Err() != nil {
						err = nil
					}
					return all, err
				}}
			}),
		},
		"looks wait for a stop": {"a look does not wait for a stop", "hold no lock", bend(locked)},
	}
}
