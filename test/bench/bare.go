package bench

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// bareNode is a node with an agent that does nothing but what each agent must.
const bareNode = "bench-bare"

// bareTurn is that of the bare agent.
func (n *node) bareTurn(ctx context.Context) (err error) {
	n.say("bare agent")
	n.forget()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	mine, err := n.api.CoreV1().Pods(n.ns).Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + bareNode})
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- n.serve(ctx, mine.ResultChan()) }()
	defer func() { mine.Stop(); err = errors.Join(err, <-served) }()
	watcher, err := n.api.CoreV1().Pods(n.ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	t := &turn{node: n, agent: Bare, events: watcher.ResultChan()}
	ready, gone, err := t.oneByOne(ctx, bareNode)
	if err != nil {
		return err
	}
	t.add(readyEach, "ms", median(ready))
	t.add(goneEach, "ms", median(gone))
	took, err := t.atOnce(ctx, bareNode)
	if err != nil {
		return err
	}
	t.add(readyAll, "s", quantile(took, 1))
	t.add(readyHalf, "s", median(took))
	return t.empty(ctx)
}

// serve is the bare agent: it starts pods that come, so many at a time as the floor does, and takes away those that are to go.
func (n *node) serve(ctx context.Context, events <-chan watch.Event) error {
	turns := make(chan struct{}, floorParallel)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards the rest
	var errs []error
	sandboxes, begun := map[types.UID]string{}, map[types.UID]bool{}
	for e := range events {
		p, is := e.Object.(*v1.Pod)
		if !is || e.Type == watch.Deleted {
			continue
		}
		goes, known := p.DeletionTimestamp != nil, begun[p.UID]
		if goes != known { // it runs already, or never did
			continue
		}
		begun[p.UID] = !goes
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			mu.Lock()
			sandbox := sandboxes[p.UID]
			mu.Unlock()
			var err error
			if goes {
				err = n.end(ctx, p.Name, sandbox)
			} else {
				sandbox, err = n.start(ctx, p, usual())
			}
			mu.Lock()
			defer mu.Unlock()
			sandboxes[p.UID] = sandbox
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// usual is what a sandbox has with the kubelet and with us, and costs the runtime time: the default filter of system calls,
// and a cgroup below that of its class.
func usual() *cri.LinuxPodSandboxConfig {
	return &cri.LinuxPodSandboxConfig{
		CgroupParent:    "/kubepods/besteffort",
		SecurityContext: &cri.LinuxSandboxSecurityContext{Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}},
	}
}
