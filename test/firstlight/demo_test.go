package firstlight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

const demos = "../../examples/manifests"

// The four demo pods come to what their manifests say, and all that looks at them sees them.
func TestDemo(t *testing.T) {
	n := newNode(t, private(t))
	check(t, n)
	files, err := os.ReadDir(demos)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		n.put(t, f.Name(), read(t, filepath.Join(demos, f.Name())))
	}
	n.Start()
	n.Ready()
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"a log is followed to the end of its container", n.TestFollow},
		{"a job succeeds", n.TestJob},
		{"init containers run in order, then the app", n.TestInitContainers},
		{"a web server becomes ready once its startup probe succeeds", n.TestWeb},
		{"names, labels and annotations are a kubelet's", n.TestIdentities},
		{"crictl shows and reaches the pods", n.TestCrictl},
		{"logs are read in parts", n.TestLogs},
		{"commands run in containers", n.TestExecs},
		{"without the token nothing is told", n.TestUnauthorized},
		{"the other answers of the API", n.TestAnswers},
		{"the table of pods", n.TestPodsTable},
		{"a crash loop waits longer each time", n.TestCrashLoop},
	} {
		t.Run(c.name, c.test)
	}
}

func (n *node) TestJob(t *testing.T) {
	p := n.runs(t, "default", "job-node", "has succeeded", patience, phase(v1.PodSucceeded))
	s := p.Status.ContainerStatuses[0]
	if s.RestartCount != 0 || s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 || s.State.Terminated.Reason != "Completed" {
		t.Errorf("its container is %s after %d restarts", stateOf(&s.State), s.RestartCount)
	}
	ran := n.seen.ended(t, "job-node", 1)
	if len(ran) != 1 {
		t.Fatalf("it ran %d times", len(ran))
	}
	if took := ran[0].finished.Sub(ran[0].started); took < 9*time.Second || took > patience {
		t.Errorf("it ran for %v, want about ten seconds", took)
	}
}

func (n *node) TestInitContainers(t *testing.T) {
	p := n.runs(t, "default", "init-node", "is ready", patience, ready)
	ran := n.seen.ran(t, "init-node", 3)
	var names []string
	for _, i := range ran {
		names = append(names, i.name)
	}
	if !slices.Equal(names, []string{"first", "second", "app"}) {
		t.Fatalf("its containers ran in the order %v", names)
	}
	for k, i := range ran[:2] {
		next := ran[k+1]
		if i.finished.IsZero() || i.code != 0 || next.started.Before(i.finished) {
			t.Errorf("%s ended at %v with %d, %s started at %v", i.name, i.finished, i.code, next.name, next.started)
		}
		t.Logf("from the end of %s to the start of %s: %v", i.name, next.name, next.started.Sub(i.finished).Round(time.Millisecond))
	}
	for _, s := range p.Status.InitContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.Reason != "Completed" || !s.Ready {
			t.Errorf("init container %s is %s, ready %v", s.Name, stateOf(&s.State), s.Ready)
		}
	}
}

func (n *node) TestWeb(t *testing.T) {
	p := n.runs(t, "default", "web-node", "is ready", patience, ready)
	if len(p.Status.ContainerStatuses) != 2 || p.Status.PodIP == "" || p.Status.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("its status is %+v", p.Status)
	}
	started := statusOf(t, p, "web").State.Running.StartedAt.Time
	for _, c := range p.Status.Conditions {
		if c.Type == v1.ContainersReady {
			// It warms up for three seconds, and times are in whole seconds.
			took := c.LastTransitionTime.Sub(started)
			t.Logf("ready %v after its start", took)
			if took < 2*time.Second || took > patience {
				t.Errorf("it was ready %v after its start, and its startup probe cannot succeed before 3 s", took)
			}
		}
	}
	if s := statusOf(t, p, "web"); s.Started == nil || !*s.Started || s.RestartCount != 0 {
		t.Errorf("its container is %s, started %v, %d restarts", stateOf(&s.State), s.Started, s.RestartCount)
	}
}

// TestCrashLoop: the first restart comes at once, the next ones after 10, 20, 40 seconds.
func (n *node) TestCrashLoop(t *testing.T) {
	waits := func(restarts int32) time.Duration { return 10 * time.Second << (restarts - 1) }
	p := n.runs(t, "default", "crashloop-node", "waits after its second restart or a later one", 3*patience, func(p *v1.Pod) error {
		s := p.Status.ContainerStatuses[0]
		if s.RestartCount < 2 || s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" {
			return errors.New("is not there yet")
		}
		return nil
	})
	s := p.Status.ContainerStatuses[0]
	if want := fmt.Sprintf("back-off %v restarting failed container=app pod=crashloop-node_default(%s)", waits(s.RestartCount), p.UID); s.State.Waiting.Message != want {
		t.Errorf("it waits with the message %q, want %q", s.State.Waiting.Message, want)
	}
	if last := s.LastTerminationState.Terminated; last == nil || last.ExitCode != 1 || last.Reason != "Error" {
		t.Errorf("its last end was %+v", last)
	}
	if p.Status.Phase != v1.PodRunning || agent.PodReady(p) {
		t.Errorf("it is %s, ready %v", p.Status.Phase, agent.PodReady(p))
	}
	if got := n.get(t, "/containerLogs/default/crashloop-node/app?previous=true"); !strings.Contains(got, "crashing on purpose") {
		t.Errorf("the log of the container before: %q", got)
	}
	ran := n.seen.await(t, p.Name, "its next restart", 3*patience, func(l []instance) bool {
		return len(l) > 3 && !l[len(l)-1].started.IsZero()
	})
	for k := range ran[:len(ran)-1] {
		if ran[k].restarts != uint32(k) {
			t.Errorf("start %d counts %d restarts", k, ran[k].restarts)
		}
		want := time.Duration(0)
		if k > 0 {
			want = waits(int32(k))
		}
		gap := ran[k+1].started.Sub(ran[k].finished)
		t.Logf("restart %d: %v after the crash, due after %v", k+1, gap.Round(time.Millisecond), want)
		if gap < want || gap > want+9*time.Second {
			t.Errorf("restart %d came %v after the crash, want %v", k+1, gap, want)
		}
	}
}

func statusOf(t *testing.T, p *v1.Pod, container string) *v1.ContainerStatus {
	t.Helper()
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	t.Fatalf("%s has no status of container %s", p.Name, container)
	return nil
}
