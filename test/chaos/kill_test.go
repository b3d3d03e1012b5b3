package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

var (
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()%1e6), "what happens when, in TestKillNine")
	kills = flag.Int("kills", 50, "how often TestKillNine kills the agent")
)

// The agent is killed at any instant while pods come and go. Whatever it was about to do, the next one finds and goes on:
// nothing runs twice, no count falls, nothing is lost and nothing stays, and pods that nobody touched notice nothing.
func TestKillNine(t *testing.T) {
	t.Logf("-seed %d -kills %d", *seed, *kills)
	n := newNode(t)
	before := n.bystanders(t)
	w := n.watch(t, n.firm(t, before)...)

	wanted, ops, upon := map[string]op{}, 0, map[string]int{}
	events := n.events(t)
	begun := time.Now()
	for i, l := range schedule(*seed, *kills) {
		w.during("life %d, which lasts %v", i+1, l)
		ops += len(l.ops)
		if n.live(t, l, wanted, events) {
			upon[l.upon.String()]++
		}
		if !w.ok() {
			return
		}
	}
	t.Logf("%d kills and %d changes in %v; killed upon events: %v", *kills, ops, round(time.Since(begun)), upon)

	w.during("the last life")
	n.Start()
	took := agent.Eventually(t, patience, "all is as wanted", mending(t, n.bed, n.view, func() error { return n.settled(t, wanted) }))
	t.Logf("%d pods are as wanted %v after the last start", len(wanted)+len(before), round(took))
	if after := n.running(t, untouched...); !maps.Equal(before, after) {
		t.Errorf("pods that nobody touched changed:\n%v\n%v", before, after)
	}
	w.during("the end")
	w.release() // from here on they go too
	for file := range wanted {
		n.Remove(file)
	}
	for _, name := range untouched {
		n.Remove(name + ".yaml")
	}
	took = agent.Eventually(t, patience, "nothing is left", mending(t, n.bed, n.view, func() error { return n.only(t.Context(), nil) }))
	t.Logf("all pods deleted: nothing is left after %v", round(took))
	w.stop()
	t.Log(w)
}

// untouched are the pods that nobody touches.
var untouched = []string{"by-plain", "by-web", "by-sidecar"}

// bystanders starts the agent with them and leaves it killed when they are ready.
func (n *node) bystanders(t *testing.T) map[string]instance {
	t.Helper()
	for i, name := range untouched {
		n.Write(name+".yaml", kindNamed([]string{"plain", "web", "sidecar"}[i]).manifest(name, 0))
	}
	n.Start()
	agent.Eventually(t, patience, "the bystanders are ready", func() error { return n.ready(t.Context(), untouched...) })
	n.Kill()
	return n.running(t, untouched...)
}

// firm are the containers of these instances.
func (n *node) firm(t *testing.T, all map[string]instance) (out []*cri.Container) {
	t.Helper()
	v, err := n.view(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		at := slices.IndexFunc(v.containers, func(c *cri.Container) bool { return c.GetId() == i.ID })
		out = append(out, v.containers[at])
	}
	return out
}

// live runs the agent for one life, and keeps book of what is wanted. It says whether an event ended it.
func (n *node) live(t *testing.T, l lifetime, wanted map[string]op, events <-chan cri.ContainerEventType) (upon bool) {
	t.Helper()
	do := func(o op) {
		if o.kind == "" {
			n.Remove(o.file())
			delete(wanted, o.file())
			return
		}
		n.Write(o.file(), kindNamed(o.kind).manifest(o.pod(), o.revision))
		wanted[o.file()] = o
	}
	ops := l.ops
	for ; len(ops) > 0 && ops[0].at < 0; ops = ops[1:] {
		do(ops[0])
	}
	n.Start()
	start := time.Now()
	defer n.Kill()
	end := time.After(l.lasts)
	for {
		var next <-chan time.Time
		if len(ops) > 0 {
			next = time.After(time.Until(start.Add(ops[0].at)))
		}
		select {
		case <-next:
			do(ops[0])
			ops = ops[1:]
		case e := <-events:
			if l.upon != nil && e == *l.upon {
				n.Kill()
				for _, o := range ops { // as nobody sees it: the next one does
					do(o)
				}
				return true
			}
		case <-end:
			return false
		}
	}
}

// events are what the runtime tells of, until the test ends.
func (n *node) events(t *testing.T) <-chan cri.ContainerEventType {
	t.Helper()
	stream, err := n.cri.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan cri.ContainerEventType)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				return // the test has ended; before it, the watcher fails as well
			}
			select {
			case out <- e.GetContainerEventType():
			case <-t.Context().Done():
				return
			}
		}
	})
	t.Cleanup(wg.Wait)
	return out
}

// settled says whether all wanted pods are as they should be in the end, and nothing else is there.
func (n *node) settled(t *testing.T, wanted map[string]op) error {
	t.Helper()
	kinds := map[string]kind{"by-plain": kindNamed("plain"), "by-web": kindNamed("web"), "by-sidecar": kindNamed("sidecar")}
	for _, o := range wanted {
		kinds[o.pod()] = kindNamed(o.kind)
	}
	v, err := n.view(t.Context())
	if err != nil {
		return err
	}
	told, err := n.told(t.Context())
	if err != nil {
		return err
	}
	uids, err := settled(kinds, told, v, startWasCut)
	return errors.Join(err, n.only(t.Context(), uids))
}

// told are the pods by the names in their manifests.
func (n *node) told(ctx context.Context) (map[string]*v1.Pod, error) {
	pods, err := n.Pods(ctx)
	all := map[string]*v1.Pod{}
	for i := range pods {
		all[strings.TrimSuffix(pods[i].Name, "-"+agent.Node)] = &pods[i]
	}
	if err == nil && len(all) != len(pods) {
		err = fmt.Errorf("%d pods have %d names: a pod has not made room for its successor yet", len(pods), len(all))
	}
	return all, err
}

// settled says whether pods are as their kinds should be in the end, by what is told of them and what the runtime has, and
// which UIDs they have. Those excused may have ended in another way.
func settled(kinds map[string]kind, told map[string]*v1.Pod, v view, excused func(*v1.Pod) bool) (uids map[string]bool, err error) {
	var errs []error
	if len(told) != len(kinds) {
		errs = append(errs, fmt.Errorf("%d pods are known, %d are wanted", len(told), len(kinds)))
	}
	uids = map[string]bool{}
	for name, k := range kinds {
		p, known := told[name]
		if !known {
			errs = append(errs, fmt.Errorf("pod %s is not known", name))
			continue
		}
		uids[string(p.UID)] = true
		if err := errors.Join(k.fits(p, v, excused), truthful(p, v)); err != nil {
			errs = append(errs, fmt.Errorf("pod %s, which is %s: %w", name, k.name, err))
		}
	}
	return uids, errors.Join(errs...)
}

// truthful says whether a pod's status tells what the runtime has.
func truthful(p *v1.Pod, v view) error {
	newest := map[string]*cri.Container{}
	for _, c := range v.containers {
		n := name(c)
		if old := newest[n.container]; n.uid == string(p.UID) && (old == nil || old.GetMetadata().GetAttempt() < c.GetMetadata().GetAttempt()) {
			newest[n.container] = c
		}
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		c := newest[s.Name]
		running := c.GetState() == cri.ContainerState_CONTAINER_RUNNING
		switch {
		case (s.State.Running != nil) != running:
			return fmt.Errorf("container %s is told to be %v, the runtime says %s", s.Name, s.State, c.GetState())
		case running && !strings.HasSuffix(s.ContainerID, "//"+c.GetId()):
			return fmt.Errorf("container %s is told to be %s, the runtime has %s", s.Name, s.ContainerID, c.GetId())
		case running && s.RestartCount != int32(c.GetMetadata().GetAttempt()):
			return fmt.Errorf("container %s is told to have been restarted %d times, the runtime has number %d", s.Name, s.RestartCount, c.GetMetadata().GetAttempt())
		}
	}
	return nil
}

// fits says whether a pod of this kind is as it should be in the end, or excused.
func (k kind) fits(p *v1.Pod, v view, excused func(*v1.Pod) bool) error {
	readySandboxes, running := 0, map[string]bool{}
	for _, s := range v.sandboxes {
		if s.GetMetadata().GetUid() == string(p.UID) && s.GetState() == cri.PodSandboxState_SANDBOX_READY {
			readySandboxes++
		}
	}
	for _, c := range v.containers {
		if name(c).uid == string(p.UID) && c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			running[name(c).container] = true
		}
	}
	if k.ends != "" {
		if p.Status.Phase != k.ends && !excused(p) || readySandboxes > 0 || len(running) > 0 {
			return fmt.Errorf("it is %s, not %s, with %d ready sandboxes and %d running containers; told: %s", p.Status.Phase, k.ends, readySandboxes, len(running), ends(p))
		}
		return nil
	}
	if p.Status.Phase != v1.PodRunning || readySandboxes != 1 {
		return fmt.Errorf("it is %s with %d ready sandboxes", p.Status.Phase, readySandboxes)
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == "app" && (k.name == "crash" || k.name == "sick") {
			continue // it comes and goes
		}
		if !running[s.Name] || !s.Ready {
			return fmt.Errorf("container %s: running %v, ready %v", s.Name, running[s.Name], s.Ready)
		}
	}
	return nil
}

// ends are how a pod's containers are told to have ended.
func ends(p *v1.Pod) string {
	var out []string
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		how := "not"
		if end := s.State.Terminated; end != nil {
			how = fmt.Sprintf("%s, code %d, %q", end.Reason, end.ExitCode, end.Message)
		}
		out = append(out, s.Name+": "+how)
	}
	return strings.Join(out, "; ")
}

// startWasCut says that a pod that is never restarted has failed because the agent was killed while a container of it was
// being started: containerd cancels the start, and that is an end like any other.
func startWasCut(p *v1.Pod) bool {
	return failedWith(p, func(end *v1.ContainerStateTerminated) bool { return end.Reason == "StartError" })
}

// endWasLost says that a pod that is never restarted has failed because a container of it ended while containerd was away:
// when containerd comes back it throws such a task away together with its exit code, and says 255 and Unknown.
func endWasLost(p *v1.Pod) bool {
	return failedWith(p, func(end *v1.ContainerStateTerminated) bool { return end.Reason == "Unknown" && end.ExitCode == 255 })
}

// failedWith says that a pod that is never restarted has failed, and that a container of it ended so.
func failedWith(p *v1.Pod, so func(*v1.ContainerStateTerminated) bool) bool {
	return p.Status.Phase == v1.PodFailed && p.Spec.RestartPolicy == v1.RestartPolicyNever &&
		slices.ContainsFunc(append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...), func(s v1.ContainerStatus) bool {
			return s.State.Terminated != nil && so(s.State.Terminated) || s.LastTerminationState.Terminated != nil && so(s.LastTerminationState.Terminated)
		})
}
