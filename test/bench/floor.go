package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/images"
)

// nowhere is a node that no agent is for.
const nowhere = "bench-floor"

// floorParallel is how many pods the floor makes at once: more does not make containerd quicker on a small machine.
const floorParallel = 4

// floor makes and removes the same pods without an agent: for each one create and one patch of its status at the API server,
// and the bare calls of the runtime.
func (n *node) floor(ctx context.Context) error {
	n.say("floor")
	n.forget()
	made, gone, err := n.floorOf(ctx)
	if err != nil {
		return err
	}
	n.table.Add(Floor, readyEach, "ms", median(made))
	n.table.Add(Floor, goneEach, "ms", median(gone))
	return n.floorAtOnce(ctx)
}

// floorAtOnce makes and removes the pods of a burst.
func (n *node) floorAtOnce(ctx context.Context) error {
	var sandboxes sync.Map
	begun := time.Now()
	err := n.each(func(name string) error {
		sandbox, err := n.floorStart(ctx, name)
		sandboxes.Store(name, sandbox)
		return err
	})
	n.table.Add(Floor, readyAll, "s", time.Since(begun).Seconds())
	begun = time.Now()
	err = errors.Join(err, n.each(func(name string) error {
		sandbox, _ := sandboxes.Load(name)
		return n.end(ctx, name, sandbox.(string))
	}))
	n.table.Add(Floor, goneAll, "s", time.Since(begun).Seconds())
	return err
}

// floorOf makes and removes pods one after the other.
func (n *node) floorOf(ctx context.Context) (made, gone []float64, err error) {
	for i := range n.cfg.Serial {
		name := fmt.Sprint("floor-", i)
		begun := time.Now()
		sandbox, err := n.floorStart(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		made = append(made, time.Since(begun).Seconds()*1000)
		begun = time.Now()
		if err := n.end(ctx, name, sandbox); err != nil {
			return nil, nil, err
		}
		gone = append(gone, time.Since(begun).Seconds()*1000)
	}
	return made, gone, nil
}

// each does something for every pod of the burst.
func (n *node) each(do func(name string) error) error {
	names := make(chan string)
	errs := make([]error, floorParallel)
	var wg sync.WaitGroup
	for w := range floorParallel {
		wg.Go(func() {
			for name := range names {
				errs[w] = errors.Join(errs[w], do(name))
			}
		})
	}
	for i := range n.cfg.Burst {
		names <- fmt.Sprint("floor-", i)
	}
	close(names)
	wg.Wait()
	return errors.Join(errs...)
}

// floorStart makes a pod and starts its container, and returns its sandbox.
func (n *node) floorStart(ctx context.Context, name string) (sandbox string, err error) {
	p, err := n.api.CoreV1().Pods(n.ns).Create(ctx, holder(name, nowhere), metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return n.start(ctx, p, &cri.LinuxPodSandboxConfig{})
}

// start starts the container of a pod, tells that it is Ready, and returns its sandbox.
func (n *node) start(ctx context.Context, p *v1.Pod, linux *cri.LinuxPodSandboxConfig) (sandbox string, err error) {
	config := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		Linux:    linux,
	}
	s, err := n.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", err
	}
	c, err := n.cri.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: s.GetPodSandboxId(), SandboxConfig: config,
		Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: images.Pause}, Linux: &cri.LinuxContainerConfig{}},
	})
	if err != nil {
		return s.GetPodSandboxId(), err
	}
	if _, err := n.cri.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		return s.GetPodSandboxId(), err
	}
	const status = `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`
	_, err = n.api.CoreV1().Pods(n.ns).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return s.GetPodSandboxId(), err
}

// end stops and removes a pod.
func (n *node) end(ctx context.Context, name, sandbox string) error {
	if _, err := n.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	if _, err := n.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	now := int64(0)
	return n.api.CoreV1().Pods(n.ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}
