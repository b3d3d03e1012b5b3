package syncloop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// size gives all containers of a new pod a request for CPU, or the policy of restarting for another one.
func (n *node) size(p *v1.Pod, key, value string) {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if key == "restarts" {
			c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
			continue
		}
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(value)}
	}
}

// resize has the source of a pod want another size of a container.
func (n *node) resize(name, what string) {
	container, value, _ := strings.Cut(what, "=")
	change := func(p *v1.Pod) {
		for i := range p.Spec.Containers {
			if p.Spec.Containers[i].Name == container {
				p.Spec.Containers[i].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(value)}
				p.Generation++
			}
		}
	}
	p := n.pods[name]
	if ofServer(p) {
		n.api.change(name, change)
		return
	}
	p = p.DeepCopy()
	change(p)
	n.pods[name] = p
	n.send()
}

// fits refuses a pod for which there is no room beside the others.
func (n *node) fits(pod *v1.Pod, others []*v1.Pod) error {
	wants := status.Requests(pod)
	sum := wants.Cpu().MilliValue()
	for _, o := range others {
		if o.UID != pod.UID {
			has := status.Requests(o)
			sum += has.Cpu().MilliValue()
		}
	}
	if n.room > 0 && sum > n.room {
		return &runtime.Rejection{Reason: "OutOfcpu", Message: "no room"}
	}
	return nil
}

// resizeLine is what a status tells of sizes; of pods that ask for nothing it is empty.
func resizeLine(pod *v1.Pod, s v1.PodStatus) (line string) {
	for _, c := range s.Conditions {
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			line += fmt.Sprintf(", %s@%d", strings.TrimRight(string(c.Type)+" "+c.Reason, " "), c.ObservedGeneration)
		}
	}
	for _, c := range s.ContainerStatuses {
		if c.Resources == nil || len(c.Resources.Requests) == 0 {
			continue
		}
		line += fmt.Sprintf(", %s has %s of %s", c.Name, c.Resources.Requests.Cpu(), c.AllocatedResources.Cpu())
	}
	if line != "" {
		line += fmt.Sprintf(", generation %d", s.ObservedGeneration)
	}
	return line
}

// notTooMuch checks that no more was promised than there is.
func (n *node) notTooMuch() {
	n.t.Helper()
	sum, all := int64(0), ""
	for _, p := range n.roster.Active() {
		has := status.Requests(p)
		sum += has.Cpu().MilliValue()
		all += fmt.Sprintf(" %s has %s, is to end: %v;", p.UID, has.Cpu(), p.DeletionTimestamp != nil)
	}
	if sum > n.room {
		n.fault("%dm of CPU are promised, there are %dm:%s", sum, n.room, all)
	}
}

// asPromised checks what must hold of sizes once the world is quiet.
func (n *node) asPromised() {
	n.t.Helper()
	promised := map[types.UID]*v1.Pod{}
	for _, p := range n.roster.Active() {
		promised[p.UID] = p
	}
	for _, p := range n.api.all() {
		if has := promised[p.UID]; has != nil { // else it was refused, or is over
			n.resizedAsPromised(p, has)
		}
	}
	_, containers := n.engine.Truth()
	for _, c := range containers {
		p := promised[c.Pod.UID]
		if p == nil || c.State != runtime.Running {
			continue
		}
		i := slices.IndexFunc(p.Spec.Containers, func(s v1.Container) bool { return s.Name == c.Name })
		if i < 0 {
			continue // a sidecar: they ask for nothing
		}
		if want := max(p.Spec.Containers[i].Resources.Requests.Cpu().MilliValue()*1024/1000, 2); c.Resources.CPUShares != want {
			n.fault("container %s of %s has %d shares, it was promised %d", c.Name, c.Pod.UID, c.Resources.CPUShares, want)
		}
	}
}

// resizedAsPromised checks a pod as the server has it against the one with the sizes that it was promised.
func (n *node) resizedAsPromised(p, has *v1.Pod) {
	n.t.Helper()
	differs := false
	for i := range p.Spec.Containers {
		differs = differs || !p.Spec.Containers[i].Resources.Requests.Cpu().Equal(*has.Spec.Containers[i].Resources.Requests.Cpu())
	}
	pending, progress := "", false
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending {
			pending = c.Reason
		}
		progress = progress || c.Type == v1.PodResizeInProgress
	}
	switch fits := n.fits(p, n.roster.Active()) == nil; {
	case progress:
		n.fault("pod %s is being resized for ever", p.UID)
	case differs != (pending == v1.PodReasonDeferred), differs && fits:
		n.fault("pod %s: wants another size: %v, fits: %v, and is told as %q", p.UID, differs, fits, pending)
	case p.Status.ObservedGeneration != p.Generation:
		n.fault("pod %s: generation %d of %d observed", p.UID, p.Status.ObservedGeneration, p.Generation)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil && c.Resources != nil && !c.Resources.Requests.Cpu().Equal(*c.AllocatedResources.Cpu()) {
			n.fault("container %s of %s is told to have %s of %s", c.Name, p.UID, c.Resources.Requests.Cpu(), c.AllocatedResources.Cpu())
		}
	}
}

// belated are looks of publishers that come late, and of steps that begin after those.
type belated struct {
	syncloop.Runtime
	run context.Context //nolint:containedctx // by which publishers are known: it is what they pass on
}

func (b belated) Pod(ctx context.Context, uid types.UID) (runtime.Pod, error) {
	if ctx != b.run {
		time.Sleep(time.Millisecond)
		return b.Runtime.Pod(ctx, uid)
	}
	defer time.Sleep(time.Second)
	return b.Runtime.Pod(ctx, uid)
}

// A look that was overtaken says nothing of the sizes that were given meanwhile.
func TestAResizeIsToldAsCompletedOnce(t *testing.T) {
	onNode(t, func(ctx context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
		cfg.Runtime = belated{cfg.Runtime, ctx}
	}, func(n *node) {
		n.do("add web app=sleep_100000 source=api cpu=100m")
		n.do("advance 1m")
		n.do("resize web app=200m")
		n.do("advance 1m")
		if got := n.told("ResizeCompleted"); strings.Count(got, "\n") != 1 {
			t.Errorf("people are told %q", got)
		}
		n.stands("at the end", "[web-1], web Running", "web")
	})
}
