package syncloop_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/status"
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

// TestHistoriesOfResizes plays random histories in which pods are resized on a node that is short of CPU, with everything
// else that can happen, and agents that are killed. Never are more CPUs promised than there are, also not by the next
// agent. Once the world is quiet, everything that runs has what its pod was promised, and every pod was promised what it
// wants or says why not.
func TestHistoriesOfResizes(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for i := range *histories {
			seeds = append(seeds, uint64(i+1))
		}
	}
	for _, s := range seeds {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { resizeHistory(t, rand.New(rand.NewPCG(s, 3))) })
		})
	}
}

func resizeHistory(t *testing.T, r *rand.Rand) {
	t.Helper()
	n := newNode(t)
	n.room, n.state = 1000, t.TempDir()
	n.start()
	defer func() { n.stop() }()
	uid := 0
	names := []string{"a", "b", "c", "d"}
	counts := map[string]int{}
	for range 60 {
		name := names[r.IntN(len(names))]
		switch r.IntN(14) {
		case 0, 1:
			uid++
			n.do(fmt.Sprintf("add %s app=sleep_9999 side=%s source=api uid=%s-%d grace=%d cpu=%dm", name, []string{"sleep_9999", "sleep_50;_exit_1"}[r.IntN(2)], name, uid, r.IntN(8), 1+r.IntN(250)) +
				[]string{"", " restarts=yes"}[r.IntN(2)])
		case 2:
			n.do(fmt.Sprint("delete ", name, " grace=", r.IntN(20)))
		case 3:
			n.do("remove " + name)
		case 4, 5, 6, 7:
			if n.pods[name] != nil {
				n.do(fmt.Sprintf("resize %s %s=%dm", name, []string{"app", "side"}[r.IntN(2)], 1+r.IntN(500)))
			}
		case 8, 9:
			n.engine.Inject("", runtimetest.Times(1+r.IntN(4), fault(r)))
		case 10:
			n.do("restart")
		case 11:
			n.do("server " + []string{"away", "back"}[r.IntN(2)])
		default:
			time.Sleep(time.Duration(r.IntN(40_000)) * time.Millisecond)
		}
		if r.IntN(2) == 0 {
			synctest.Wait()
		}
		n.noUIDTwins(counts)
		n.notTooMuch()
	}
	n.engine.Inject("", nil)
	n.do("server back")
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	n.notTooMuch()
	n.asPromised()
}

// notTooMuch checks that no more was promised than there is.
func (n *node) notTooMuch() {
	n.t.Helper()
	sum := int64(0)
	for _, p := range n.roster.Active() {
		has := status.Requests(p)
		sum += has.Cpu().MilliValue()
	}
	if sum > n.room {
		for _, p := range n.roster.Active() {
			has := status.Requests(p)
			n.t.Logf("%s has %s, is to end: %v; the server has %s", p.UID, has.Cpu(), p.DeletionTimestamp != nil, n.api.show(p.Name))
		}
		n.t.Fatalf("%dm of CPU are promised, there are %dm; what was done:\n%s", sum, n.room, strings.Join(n.take(), "\n"))
	}
}

// asPromised checks what must hold once the world is quiet.
func (n *node) asPromised() {
	n.t.Helper()
	promised := map[string]*v1.Pod{}
	for _, p := range n.roster.Active() {
		promised[string(p.UID)] = p
	}
	for _, p := range n.api.all() {
		has := promised[string(p.UID)]
		if has == nil {
			continue // refused
		}
		differs := slices.ContainsFunc([]int{0, 1}, func(i int) bool {
			return !p.Spec.Containers[i].Resources.Requests.Cpu().Equal(*has.Spec.Containers[i].Resources.Requests.Cpu())
		})
		pending, progress := "", false
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodResizePending {
				pending = c.Reason
			}
			progress = progress || c.Type == v1.PodResizeInProgress
		}
		switch fits := n.fits(p, n.roster.Active()) == nil; {
		case progress:
			n.t.Errorf("pod %s is being resized for ever", p.UID)
		case differs != (pending == v1.PodReasonDeferred), differs && fits:
			n.t.Errorf("pod %s: wants another size: %v, fits: %v, and is told as %q", p.UID, differs, fits, pending)
		case p.Status.ObservedGeneration != p.Generation:
			n.t.Errorf("pod %s: generation %d of %d observed", p.UID, p.Status.ObservedGeneration, p.Generation)
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil && !c.Resources.Requests.Cpu().Equal(*c.AllocatedResources.Cpu()) {
				n.t.Errorf("container %s of %s is told to have %s of %s", c.Name, p.UID, c.Resources.Requests.Cpu(), c.AllocatedResources.Cpu())
			}
		}
	}
	_, containers := n.truth()
	for _, c := range containers {
		p := promised[string(c.Pod.UID)]
		if p == nil || c.State != runtime.Running {
			continue
		}
		i := slices.IndexFunc(p.Spec.Containers, func(s v1.Container) bool { return s.Name == c.Name })
		if want := max(p.Spec.Containers[i].Resources.Requests.Cpu().MilliValue()*1024/1000, 2); c.Resources.CPUShares != want {
			n.t.Errorf("container %s of %s has %d shares, it was promised %d", c.Name, c.Pod.UID, c.Resources.CPUShares, want)
		}
	}
}
