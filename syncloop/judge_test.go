package syncloop_test

import (
	"cmp"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// judge watches what is done to pods in a history, and finds fault with what must never be, whatever happened.
type judge struct {
	n *node

	mu    sync.Mutex // guards the rest
	agent int        // number of the agent
	cases map[types.UID]*trial
}

// trial is what is known of one pod.
type trial struct {
	pod     *v1.Pod
	ends    bool                 // somebody wants it to end, or it does so by itself
	least   time.Duration        // that anybody asked for, for it to end
	most    time.Duration        // that its spec or a deletion asked for
	killer  time.Duration        // the least that one asked for who told this agent
	why     string               // what the first one said who told this agent
	agent   int                  // that was there when it was first to end
	resized bool                 // sizes were asked for while it ran
	first   map[string]time.Time // when an instance was first to be asked to end
	asked   map[string]bool      // it may have heard
	lives   map[string]*lives    // by container
	reason  string               // told with its last phase
	counts  map[string]int32     // restarts told, by container
}

// lives of a container under one agent.
type lives struct {
	agent    int
	restarts int // since it last lived long
	started  time.Time
}

func newJudge(n *node) *judge { return &judge{n: n, cases: map[types.UID]*trial{}} }

// wanted begins a trial.
func (j *judge) wanted(p *v1.Pod) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	grace := max(time.Duration(*p.Spec.TerminationGracePeriodSeconds)*time.Second, plan.MinGrace)
	j.cases[p.UID] = &trial{
		pod: p, least: grace, most: grace,
		ends:  p.Spec.RestartPolicy != v1.RestartPolicyAlways || p.Spec.ActiveDeadlineSeconds != nil,
		first: map[string]time.Time{}, asked: map[string]bool{}, lives: map[string]*lives{}, counts: map[string]int32{}, agent: j.agent,
	}
}

// unwanted notes that somebody wants a pod to end: its source, or a killer. Within zero is as long as its spec says.
func (j *judge) unwanted(uid types.UID, within time.Duration, killer bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.cases[uid]
	if c == nil {
		return
	}
	c.ends = true
	if within > 0 {
		within = max(within, plan.MinGrace)
		c.least = min(c.least, within)
		if killer {
			c.killer = min(within, cmp.Or(c.killer, within))
		} else {
			c.most = max(c.most, within)
		}
	}
}

func (j *judge) resized(uid types.UID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.cases[uid]; c != nil {
		c.resized = true
	}
}

func (j *judge) newAgent() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.agent++
	for _, c := range j.cases {
		c.killer, c.why = 0, ""
	}
}

// scene is what there is of the pod of a container.
type scene struct {
	*trial
	runtime.Container
	kind    plan.Kind
	others  []runtime.Container // of the pod
	serving bool                // its sandbox is the newest, and ready
}

// look is nil when there is nothing to judge.
func (j *judge) look(id string) *scene {
	if j == nil {
		return nil
	}
	sandboxes, containers := j.n.engine.Truth()
	i := slices.IndexFunc(containers, func(c runtime.Container) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	s := &scene{Container: containers[i]}
	s.trial = j.cases[s.Pod.UID]
	if s.trial == nil {
		return nil
	}
	for _, c := range containers {
		if c.Pod.UID == s.Pod.UID && c.ID != id {
			s.others = append(s.others, c)
		}
	}
	_, s.kind = plan.Find(s.pod, s.Name)
	newest := runtime.Sandbox{}
	for _, b := range sandboxes {
		if b.UID == s.Pod.UID && (newest.ID == "" || b.Attempt > newest.Attempt) {
			newest = b
		}
	}
	s.serving = newest.ID == s.SandboxID && newest.Ready
	return s
}

// starts judges that a container is about to be started.
func (j *judge) starts(id string) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.look(id)
	if s == nil {
		return
	}
	for _, c := range s.others {
		if c.Name == s.Name && c.State == runtime.Running {
			j.n.fault("%s of %s starts while number %d of it runs", s.Name, s.Pod.UID, c.Restarts)
		}
	}
	if s.kind != plan.Ephemeral {
		j.inOrder(s)
	}
	j.inTime(s)
}

// inOrder holds that init containers run one by one before the rest, and that sidecars begin before what comes behind.
func (j *judge) inOrder(s *scene) {
	here := func(name string, is func(c runtime.Container) bool) bool {
		return slices.ContainsFunc(s.others, func(c runtime.Container) bool { return c.SandboxID == s.SandboxID && c.Name == name && is(c) })
	}
	over := func(c runtime.Container) bool { return c.State == runtime.Exited && c.ExitCode == 0 }
	begun := func(c runtime.Container) bool { return c.State != runtime.Created }
	regular := slices.ContainsFunc(s.pod.Spec.Containers, func(c v1.Container) bool { return here(c.Name, begun) })
	for i := range s.pod.Spec.InitContainers {
		c := &s.pod.Spec.InitContainers[i]
		switch sidecar := plan.InitKind(c) == plan.Sidecar; {
		case c.Name == s.Name && !sidecar && regular:
			j.n.fault("init container %s of %s starts, and regular ones have begun", s.Name, s.Pod.UID)
		case c.Name == s.Name:
			return
		case sidecar && !here(c.Name, begun):
			j.n.fault("%s of %s starts before sidecar %s", s.Name, s.Pod.UID, c.Name)
		case !sidecar && !here(c.Name, over):
			j.n.fault("%s of %s starts before init container %s has ended well", s.Name, s.Pod.UID, c.Name)
		}
	}
}

// inTime holds that a container which crashes again and again waits longer each time: 10 s, 20 s, and so on up to 300 s.
func (j *judge) inTime(s *scene) {
	now := time.Now()
	var last *runtime.Container
	for i, c := range s.others {
		if c.Name == s.Name && c.State == runtime.Exited && (last == nil || c.Restarts > last.Restarts) {
			last = &s.others[i]
		}
	}
	if last != nil && last.SandboxID != s.SandboxID {
		last = nil // what ended with its sandbox has not crashed
	}
	l := s.lives[s.Name]
	if l == nil || l.agent != j.agent {
		s.lives[s.Name] = &lives{agent: j.agent, started: now}
		if last != nil {
			s.lives[s.Name].restarts = 1
		}
		return
	}
	switch {
	case last == nil:
		return
	case last.Finished.Sub(l.started) > plan.BackoffReset-3*time.Minute: // from when its start was asked for, and that may take a while
		l.restarts = 0
	case l.restarts > 0:
		due := min(plan.BackoffFirst<<min(l.restarts-1, 10), plan.BackoffMax)
		if waited := now.Sub(last.Finished); waited < due-time.Second && !s.resized {
			j.n.fault("%s of %s starts again after %v, and that is its restart %d: %v are due", s.Name, s.Pod.UID, waited, l.restarts+1, due)
		}
	}
	l.restarts++
	l.started = now
}

// stops judges that a container is about to be stopped.
func (j *judge) stops(id string, grace time.Duration) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.look(id)
	if s == nil || s.State != runtime.Running {
		return
	}
	resizes := s.resized && len(s.pod.Spec.Containers[0].ResizePolicy) > 0
	if !s.ends && s.serving && !resizes {
		j.n.fault("%s of %s is stopped, and nobody wants that", s.Name, s.Pod.UID)
	}
	if most := min(s.most, cmp.Or(s.killer, s.most)); grace > most {
		j.n.fault("%s of %s is given %v to end, and somebody asked for %v", s.Name, s.Pod.UID, grace, most)
	}
	known := slices.ContainsFunc(j.n.roster.Pods(), func(p *v1.Pod) bool { return p.UID == s.Pod.UID }) // else nobody knows which are sidecars
	if grace > plan.MinGrace && s.kind == plan.Sidecar && s.serving && known {
		for _, c := range s.others {
			if _, kind := plan.Find(s.pod, c.Name); kind == plan.Regular && c.State == runtime.Running && c.SandboxID == s.SandboxID {
				j.n.fault("sidecar %s of %s is stopped while %s runs, with %v left", s.Name, s.Pod.UID, c.Name, grace)
			}
		}
	}
	if _, known := s.first[id]; !known {
		s.first[id] = time.Now()
	}
	if due := max((j.due(s) - time.Since(s.first[id])).Truncate(time.Second), plan.MinGrace); s.kind == plan.Regular && !s.asked[id] && grace < due {
		j.n.fault("%s of %s is given %v to end, and has %v", s.Name, s.Pod.UID, grace, due)
	}
	s.asked[id] = true
}

// due is how long a container may take to end from the moment at which it hears of it.
func (j *judge) due(s *scene) time.Duration {
	if s.agent != j.agent { // another agent lets it have what is left by the server's account
		return plan.MinGrace
	}
	return s.least
}

// unheard notes that a container has not heard that it is to end.
func (j *judge) unheard(id string) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.look(id); s != nil {
		delete(s.asked, id)
	}
}

// ends judges that all containers are about to be killed for which which is true.
func (j *judge) ends(which func(runtime.Container) bool) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, containers := j.n.engine.Truth()
	for _, c := range containers {
		if c.State != runtime.Running || !which(c) {
			continue
		}
		s := j.look(c.ID)
		if s == nil || s.kind == plan.Sidecar {
			continue
		}
		since := time.Since(s.first[c.ID])
		if heard := s.asked[c.ID] || since > j.due(s)+5*time.Minute; !heard || since < j.due(s)-time.Second {
			j.n.fault("%s of %s is killed, asked to end %v, %v ago, and has %v", c.Name, c.Pod.UID, s.asked[c.ID], since, j.due(s))
		}
	}
}

// killed notes why a killer wants a pod to end.
func (j *judge) killed(uid types.UID, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.cases[uid]; c != nil {
		c.why = cmp.Or(c.why, why)
	}
}

// told judges a status.
func (j *judge) told(pod *v1.Pod, st v1.PodStatus) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.cases[pod.UID]
	if c == nil {
		return
	}
	if st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed {
		if c.reason != "" && c.reason != st.Reason {
			j.n.fault("%s was told to be over for %s, now for %s", pod.UID, c.reason, st.Reason)
		}
		if c.reason == "" && c.why != "" && (st.Reason == "Evicted" || st.Reason == "Preempting") && st.Reason != c.why {
			j.n.fault("%s was killed first for %s, and is told to be over for %s", pod.UID, c.why, st.Reason)
		}
		c.reason = st.Reason
	}
	for _, s := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		if s.RestartCount < c.counts[s.Name] {
			j.n.fault("the restart count told of %s of %s went from %d down to %d", s.Name, pod.UID, c.counts[s.Name], s.RestartCount)
		}
		c.counts[s.Name] = s.RestartCount
	}
}

// finished judges that a pod has finished.
func (j *judge) finished(pod *v1.Pod, holds bool) {
	if j == nil {
		return
	}
	_, containers := j.n.engine.Truth()
	running := slices.ContainsFunc(containers, func(c runtime.Container) bool { return c.Pod.UID == pod.UID && c.State == runtime.Running })
	if running || holds {
		j.n.fault("%s has finished: containers run: %v, volumes are held: %v", pod.UID, running, holds)
	}
}
