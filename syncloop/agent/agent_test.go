package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// wanted is a source of these pods; nil never says anything.
type wanted []*v1.Pod

func (w wanted) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	if w != nil {
		set(w, true)
	}
	<-ctx.Done()
	return nil
}

// told is a sink that keeps the phase of each pod.
type told struct {
	mu     sync.Mutex // guards phases
	phases map[string]string
}

func newTold() *told { return &told{phases: map[string]string{}} }

func (s *told) UpdateStatus(_ context.Context, pod *v1.Pod, status v1.PodStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases[pod.Name] = string(status.Phase)
	return nil
}

func (s *told) Finished(_ context.Context, pod *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases[pod.Name] += " finished"
	return nil
}

func (s *told) of(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phases[name]
}

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways,
			Containers:    []v1.Container{{Name: "c", Image: "i", Command: []string{"sleep", "1000000"}}},
		},
	}
}

// start runs an agent until stop.
func start(t *testing.T, cfg Config) (a *Agent, stop func()) {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	return a, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func newEngine() *runtimetest.Engine {
	return runtimetest.New(runtime.Image{ID: "i", Tags: []string{"i"}})
}

func TestPodsRunAndAreStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, sink := newEngine(), newTold()
		a, stop := start(t, Config{
			Sources: map[string]syncloop.PodSource{"test": wanted{pod("web")}}, Sink: sink, Root: t.TempDir(),
			Engine: engine, Notifier: engine, Reopen: engine, Scheme: "memory",
		})
		defer stop()
		time.Sleep(5 * time.Second)
		if got := sink.of("web"); got != "Running" {
			t.Fatalf("the pod is %q", got)
		}
		for range 4 {
			if err := engine.Exit(engine.Newest("web", "c"), 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute) // longer than any back-off
		}
		status := a.Roster().Pods()[0].Status.ContainerStatuses[0]
		if status.RestartCount != 4 || !status.Ready || !strings.HasPrefix(status.ContainerID, "memory://") {
			t.Errorf("status %+v", status)
		}
		if _, containers := engine.Truth(); len(containers) > 2 {
			t.Errorf("%d containers are left, want the running one and the one before", len(containers))
		}
		for name, healthy := range a.Health() {
			if err := healthy(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestPodsThatClaimDevicesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, sink, web := newEngine(), newTold(), pod("web")
		web.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		web.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
		a, stop := start(t, Config{Sources: map[string]syncloop.PodSource{"test": wanted{web}}, Sink: sink, Root: t.TempDir(), Engine: engine})
		defer stop()
		time.Sleep(time.Minute)
		if got := sink.of("web"); got != "Failed finished" {
			t.Fatalf("the pod is %q", got)
		}
		if s := a.Roster().Pods()[0].Status; s.Reason != "PodFeatureUnsupported" || !strings.Contains(s.Message, "gpu") {
			t.Errorf("status %+v", s)
		}
		if sandboxes, containers := engine.Truth(); len(sandboxes)+len(containers) > 0 {
			t.Errorf("made were %v %v", sandboxes, containers)
		}
	})
}

func TestPodsThatAskForMoreThanTheEngineCanDoAreRefused(t *testing.T) {
	for _, can := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			engine, sink, web, want := newEngine(), newTold(), pod("web"), "Failed finished"
			if can {
				info, err := engine.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				info.GroupsPolicy, want = true, "Running"
				engine.SetInfo(info)
			}
			web.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
			a, stop := start(t, Config{Sources: map[string]syncloop.PodSource{"test": wanted{web}}, Sink: sink, Root: t.TempDir(), Engine: engine})
			defer stop()
			time.Sleep(time.Minute)
			if got := sink.of("web"); got != want {
				t.Errorf("the pod is %q, want %q", got, want)
			}
			if s := a.Roster().Pods()[0].Status; (s.Reason == "SupplementalGroupsPolicyNotSupported") == can {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestSourcesThatCannotBeRememberedAreRefused(t *testing.T) {
	for name, want := range map[string]string{"a": "", "": `source "" wants`, ".": `source "." wants`, "..": `source ".." wants`, "a/b": `source "a/b" wants`} {
		cfg := Config{Sources: map[string]syncloop.PodSource{name: wanted{}}, Sink: newTold(), Root: t.TempDir(), Engine: newEngine()}
		if _, err := New(cfg); err != nil {
			t.Errorf("%q without memory: %v", name, err)
		}
		cfg.Remember = true
		if _, err := New(cfg); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
		cfg.Sources[name] = nil
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), " is nil") {
			t.Errorf("%q without a source: %v", name, err)
		}
	}
}

// mine is a rule of one's own.
type mine struct{}

func (mine) Admit(_ context.Context, pod *v1.Pod, _ []*v1.Pod) error {
	if pod.Labels["trust"] == "no" {
		return &runtime.Rejection{Reason: "NotTrusted", Message: "nobody vouches for it"}
	}
	return nil
}

func TestRulesAndVolumesOfOnesOwnStandBesideTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, sink, root := newEngine(), newTold(), t.TempDir()
		web, shady, claims := pod("web"), pod("shady"), pod("claims")
		web.Spec.Volumes = []v1.Volume{{Name: "maps", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "maps.example"}}}}
		web.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "maps", MountPath: "/maps"}}
		shady.Labels = map[string]string{"trust": "no"}
		claims.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		claims.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
		a, stop := start(t, Config{
			Sources: map[string]syncloop.PodSource{"test": wanted{web, shady, claims}}, Sink: sink, Root: root, Engine: engine,
			Admit: append(Standard(engine), mine{}),
			OtherVolumes: func(_ context.Context, _ *v1.Pod, v *v1.Volume, dir string) (runtime.Volume, error) {
				return runtime.Volume{Path: dir}, os.WriteFile(filepath.Join(dir, "map"), []byte(v.CSI.Driver), 0o600)
			},
		})
		time.Sleep(time.Minute)
		if got := sink.of("web") + ", " + sink.of("shady") + ", " + sink.of("claims"); got != "Running, Failed finished, Failed finished" {
			t.Errorf("the pods are %s", got)
		}
		dir := filepath.Join(root, "pods/web/volumes/kubernetes.io~csi/maps")
		if text, err := os.ReadFile(filepath.Join(dir, "map")); string(text) != "maps.example" {
			t.Errorf("the volume has %q, %v", text, err)
		}
		stop()
		if _, err := a.End(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}
	})
}

// An agent that ends leaves its pods; the next one adopts them, while its source says nothing yet.
func TestPodsGoOnWithoutTheirSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, root := newEngine(), t.TempDir()
		cfg := Config{
			Sources: map[string]syncloop.PodSource{"test": wanted{pod("web")}}, Sink: newTold(), Root: root,
			Engine: engine, Notifier: engine, Remember: true,
		}
		_, stop := start(t, cfg)
		time.Sleep(5 * time.Second)
		stop()
		before := engine.Newest("web", "c")

		sink := newTold()
		cfg.Sources, cfg.Sink = map[string]syncloop.PodSource{"test": wanted(nil)}, sink
		_, stop = start(t, cfg)
		time.Sleep(time.Minute)
		if got := engine.Newest("web", "c"); got != before || got == "" || sink.of("web") != "Running" {
			t.Errorf("container %q, was %q; told %q", got, before, sink.of("web"))
		}
		engine.Reboot()
		time.Sleep(time.Minute)
		if got := engine.Newest("web", "c"); got == before || sink.of("web") != "Running" {
			t.Errorf("after a reboot: container %q; told %q", got, sink.of("web"))
		}
		stop()
	})
}

func TestEndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine()
		a, stop := start(t, Config{
			Sources: map[string]syncloop.PodSource{"test": wanted{pod("a"), pod("b"), pod("c")}}, Sink: newTold(), Root: t.TempDir(), Engine: engine,
		})
		time.Sleep(5 * time.Second)
		stop()

		broken := errors.New("no answer")
		engine.Inject("RemoveSandbox", runtimetest.Times(1, runtimetest.Fail(broken)))
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Run was called before") {
			t.Errorf("run again: %v", err)
		}
		ended, err := a.End(t.Context())
		if len(ended) != 2 || !errors.Is(err, broken) {
			t.Errorf("%d pods ended, want 2, and error %v", len(ended), err)
		}
		ended, err = a.End(t.Context())
		if len(ended) != 1 || err != nil {
			t.Errorf("then %v ended, error %v", ended, err)
		}
		if sandboxes, containers := engine.Truth(); len(sandboxes)+len(containers) > 0 {
			t.Errorf("left: %v, %v", sandboxes, containers)
		}
		engine.Inject("ListSandboxes", runtimetest.Fail(broken))
		if _, err := a.End(t.Context()); !errors.Is(err, broken) {
			t.Errorf("without a list: error %v", err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	sources, sink, engine := map[string]syncloop.PodSource{"test": wanted{}}, newTold(), newEngine()
	for what, cfg := range map[string]Config{
		"no source":       {Sink: sink, Engine: engine, Root: "/x"},
		"no sink":         {Sources: sources, Engine: engine, Root: "/x"},
		"no engine":       {Sources: sources, Sink: sink, Root: "/x"},
		"no root":         {Sources: sources, Sink: sink, Engine: engine},
		"a relative root": {Sources: sources, Sink: sink, Engine: engine, Root: "x"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
