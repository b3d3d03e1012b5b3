package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	for _, f := range []struct {
		sandbox *cri.LinuxPodSandboxConfig
		of      string
	}{{&cri.LinuxPodSandboxConfig{}, ""}, {usual(), " of a sandbox as agents ask for it"}} {
		made, gone, err := n.floorOf(ctx, f.sandbox)
		if err != nil {
			return err
		}
		n.table.Add(Floor, "one by one"+f.of+": from create to Ready, p50", "ms", median(made))
		n.table.Add(Floor, "one by one"+f.of+": from delete to gone, p50", "ms", median(gone))
		if err := n.floorAtOnce(ctx, f.sandbox, f.of); err != nil {
			return err
		}
	}
	return nil
}

// floorAtOnce makes and removes the pods of a burst.
func (n *node) floorAtOnce(ctx context.Context, linux *cri.LinuxPodSandboxConfig, of string) error {
	var sandboxes sync.Map
	begun := time.Now()
	err := n.each(func(name string) error {
		sandbox, err := n.bareStart(ctx, name, linux)
		sandboxes.Store(name, sandbox)
		return err
	})
	n.table.Add(Floor, "at once"+of+": until the last is Ready", "s", time.Since(begun).Seconds())
	begun = time.Now()
	err = errors.Join(err, n.each(func(name string) error {
		sandbox, _ := sandboxes.Load(name)
		return n.bareEnd(ctx, name, sandbox.(string))
	}))
	n.table.Add(Floor, "at once"+of+": until the last is gone", "s", time.Since(begun).Seconds())
	return err
}

// usual is what a sandbox has with the kubelet and with us, and costs the runtime time: the default filter of system calls,
// and a cgroup below that of its class.
func usual() *cri.LinuxPodSandboxConfig {
	return &cri.LinuxPodSandboxConfig{
		CgroupParent:    "/kubepods/besteffort",
		SecurityContext: &cri.LinuxSandboxSecurityContext{Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}},
	}
}

// floorOf makes and removes pods one after the other.
func (n *node) floorOf(ctx context.Context, linux *cri.LinuxPodSandboxConfig) (made, gone []float64, err error) {
	for i := range n.cfg.Serial {
		name := fmt.Sprint("floor-", i)
		begun := time.Now()
		sandbox, err := n.bareStart(ctx, name, linux)
		if err != nil {
			return nil, nil, err
		}
		made = append(made, time.Since(begun).Seconds()*1000)
		begun = time.Now()
		if err := n.bareEnd(ctx, name, sandbox); err != nil {
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

// bareStart makes a pod and starts its container, and returns its sandbox.
func (n *node) bareStart(ctx context.Context, name string, linux *cri.LinuxPodSandboxConfig) (sandbox string, err error) {
	p, err := n.api.CoreV1().Pods(n.ns).Create(ctx, holder(name, nowhere), metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	config := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: n.ns, Uid: string(p.UID)},
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
	_, err = n.api.CoreV1().Pods(n.ns).Patch(ctx, name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return s.GetPodSandboxId(), err
}

// bareEnd stops and removes a pod.
func (n *node) bareEnd(ctx context.Context, name, sandbox string) error {
	if _, err := n.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	if _, err := n.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	now := int64(0)
	return n.api.CoreV1().Pods(n.ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}
