package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// More reports from the field, by their number in kubernetes/kubernetes.

// A pod that ends is told as it is, by its probes (#105780, #124648, #140882) and container by container (#129552): who
// balances load would send requests to it as long as its grace lasts.
func TestAPodThatEndsIsToldAsItGoes(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *server, a *Agent, p *v1.Pod){
		"deleted": func(_ *testing.T, s *server, _ *Agent, p *v1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(time.Minute))), new(int64(60))
			s.wants(p)
		},
		"evicted": func(t *testing.T, _ *server, a *Agent, p *v1.Pod) {
			t.Helper()
			go func() {
				_ = a.Roster().Kill(t.Context(), p.UID, runtime.Termination{Grace: time.Minute, Reason: "Evicted", Disruption: true})
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				e, cmds := withCommands()
				e.Behave = func(c *runtime.ContainerConfig) runtimetest.Behavior {
					return runtimetest.Behavior{StopAfter: map[string]time.Duration{"c": 50 * time.Second, "short": 10 * time.Second}[c.Name], Exec: cmds.exec}
				}
				a, stop := start(t, Config{Sources: map[string]syncloop.PodSource{"api": s}, Sink: s, Root: t.TempDir(), Engine: e, Notifier: e})
				defer stop()
				web := func() *v1.Pod {
					p := with(pod("web"), func(c *v1.Container) { c.ReadinessProbe = command("ready", 2) })
					p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "short", Image: "i"})
					p.Spec.TerminationGracePeriodSeconds = new(int64(60))
					return p
				}
				s.wants(web())
				time.Sleep(10 * time.Second)
				if c := ready(s.last(t, "web")); c.Status != v1.ConditionTrue {
					t.Fatalf("before: %+v", c)
				}
				end(t, s, a, web())
				cmds.fail("ready", true)
				time.Sleep(3 * time.Second)
				got := s.last(t, "web")
				if ready(got).Status != v1.ConditionFalse || got.Phase != v1.PodRunning || got.ContainerStatuses[0].Ready || !got.ContainerStatuses[1].Ready {
					t.Errorf("its probe fails, and it is told as %s, %+v", got.Phase, got.Conditions)
				}
				time.Sleep(9 * time.Second)
				if got = s.last(t, "web"); got.ContainerStatuses[1].State.Terminated == nil || got.ContainerStatuses[1].Ready || got.Phase != v1.PodRunning {
					t.Errorf("one container has ended, and it is told as %s, %+v", got.Phase, got.ContainerStatuses[1])
				}
			})
		})
	}
}

// The sandbox and its address are told before the images of a pod have come (#134660).
func TestAnAddressIsToldBeforeTheImagesHaveCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		e := runtimetest.New()
		e.Remote(runtime.Image{ID: "i", Tags: []string{"i"}})
		e.Inject("PullImage", runtimetest.Delay(10*time.Minute))
		images, err := image.New(image.Config{Images: e, Root: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer begin(t, s, e, t.TempDir(), func(c *Config) { c.Images = images })()
		s.wants(pod("web"))
		time.Sleep(3 * time.Second)
		got := s.last(t, "web")
		told := ""
		for _, c := range got.Conditions {
			told += string(c.Type) + "=" + string(c.Status) + " "
		}
		if !strings.Contains(told, "PodReadyToStartContainers=True") || got.PodIP == "" || got.Phase != v1.PodPending {
			t.Errorf("it is %s with the address %q, %s", got.Phase, got.PodIP, told)
		}
	})
}

// A runtime that is away answers no probe, which is no reason to kill what runs (#110070 and many others).
func TestARuntimeThatIsAwayFailsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		e, _ := withCommands()
		defer begin(t, s, e, t.TempDir())()
		s.wants(with(pod("web"), func(c *v1.Container) { c.LivenessProbe, c.ReadinessProbe = command("live", 1), command("ready", 1) }))
		time.Sleep(10 * time.Second)
		first := e.Newest("web", "c")
		e.Inject("", runtimetest.Fail(runtime.ErrUnavailable))
		time.Sleep(5 * time.Minute)
		e.Inject("", nil)
		time.Sleep(time.Minute)
		if now := e.Newest("web", "c"); now != first {
			t.Errorf("%s runs, %s did", now, first)
		}
		for _, status := range s.of("web")[2:] {
			if c := ready(status); c.Status != v1.ConditionTrue && len(status.ContainerStatuses) > 0 && status.ContainerStatuses[0].State.Running != nil {
				t.Errorf("told %+v", c)
			}
		}
	})
}
