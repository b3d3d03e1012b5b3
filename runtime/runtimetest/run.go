package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Option changes how Run tests.
type Option func(*suite)

// Image is the image containers are made from, as a user writes it. It is on the host and has sh, echo and
// sleep. Without it Run takes the first image the engine lists; for engines that list none it may be any word they take.
func Image(ref string) Option { return func(s *suite) { s.image = ref } }

// Namespace of all pods Run makes; without it "runtimetest".
func Namespace(ns string) Option { return func(s *suite) { s.namespace = ns } }

// LogDir is where log directories of pods are made; without it a temporary directory.
func LogDir(dir string) Option { return func(s *suite) { s.logs = dir } }

// Abilities are what only some engines can do; a nil one is not tested.
type Abilities struct {
	Notifier    runtime.Notifier
	LogReopener runtime.LogReopener
	Stats       runtime.Stats
}

// Able says what the engines that open gives can do beyond runtime.Engine.
func Able(of func(runtime.Engine) Abilities) Option { return func(s *suite) { s.able = of } }

// Run checks that an engine keeps the promises of runtime.Engine. Each call of open gives an engine over
// the same node, as a restarted program would make it; the engine must be ready, and containers must
// write log files.
func Run(t *testing.T, open func() runtime.Engine, options ...Option) {
	t.Helper()
	s := suite{open: open, namespace: "runtimetest", able: func(runtime.Engine) Abilities { return Abilities{} }}
	for _, o := range options {
		o(&s)
	}
	if s.logs == "" {
		s.logs = t.TempDir()
	}
	images, err := open().ListImages(t.Context())
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		s.imageless = true
	case s.image != "":
	case err != nil || len(images) == 0:
		t.Fatalf("the suite needs an image; the engine lists %v, %v", images, err)
	default:
		s.image = firstOr(images[0].Tags, images[0].ID)
	}
	for _, rules := range []map[string]func(*scene){
		engineRules(), sandboxRules(), containerRules(), stopRules(), execRules(), imageRules(), logRules(), abilityRules(),
	} {
		for _, name := range slices.Sorted(maps.Keys(rules)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rules[name](s.scene(t))
			})
		}
	}
}

// suite is what all tests of one Run share.
type suite struct {
	open      func() runtime.Engine
	image     string
	imageless bool
	namespace string
	logs      string
	able      func(runtime.Engine) Abilities
}

// scene is one test: an engine and a pod of its own, which is removed when the test ends.
type scene struct {
	*testing.T
	suite
	runtime.Engine
	pod runtime.PodRef
	ctx context.Context // ends with the test, in two minutes at the latest
}

func (s suite) scene(t *testing.T) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c := &scene{T: t, suite: s, Engine: s.open(), ctx: ctx}
	c.pod = c.newPod()
	return c
}

// newPod is a name nobody has; what will be made of it is removed at the end.
func (s *scene) newPod() runtime.PodRef {
	id := fmt.Sprintf("%016x", rand.Uint64())
	pod := runtime.PodRef{Namespace: s.namespace, Name: "contract-" + id[:8], UID: types.UID(id)}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		sandboxes, err := s.ListSandboxes(ctx, runtime.Filter{Pod: pod.UID})
		if err != nil {
			s.Errorf("clean up %v: %v", pod, err)
		}
		for _, b := range sandboxes {
			if err := s.RemoveSandbox(ctx, b.ID); err != nil {
				s.Errorf("clean up %v: %v", pod, err)
			}
		}
	})
	return pod
}

// sandboxConfig is the smallest one that has something of everything that comes back.
func (s *scene) sandboxConfig(pod runtime.PodRef) *runtime.SandboxConfig {
	return &runtime.SandboxConfig{
		Pod: pod, Hostname: pod.Name,
		LogDir:      filepath.Join(s.logs, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID)),
		Labels:      map[string]string{"app": "contract"},
		Annotations: map[string]string{"example.com/note": "kept as it is: \"Grüße\"\n"},
	}
}

// container is a config for a shell that runs script.
func (s *scene) container(name, script string, of *runtime.SandboxConfig) *runtime.ContainerConfig {
	s.Helper()
	if err := os.MkdirAll(filepath.Join(of.LogDir, name), 0o755); err != nil {
		s.Fatal(err)
	}
	return &runtime.ContainerConfig{
		Pod: of.Pod, Name: name, Image: s.image, UserImage: s.image,
		Command: []string{"sh", "-c", script},
		Labels:  map[string]string{"tier": "test"},
		Annotations: map[string]string{
			runtime.AnnotationHash: "1a2b3c", "example.com/json": `{"a":[1,2]}`,
		},
		LogPath: name + "/0.log",
		Sandbox: of,
	}
}

// run makes a sandbox.
func (s *scene) run(c *runtime.SandboxConfig) string {
	s.Helper()
	id, err := s.RunSandbox(s.ctx, c)
	if err != nil || id == "" {
		s.Fatalf("RunSandbox = %q, %v", id, err)
	}
	return id
}

// start makes a container and starts it.
func (s *scene) start(sandbox string, c *runtime.ContainerConfig) string {
	s.Helper()
	id := s.create(sandbox, c)
	if err := s.StartContainer(s.ctx, id); err != nil {
		s.Fatalf("StartContainer: %v", err)
	}
	return id
}

func (s *scene) create(sandbox string, c *runtime.ContainerConfig) string {
	s.Helper()
	id, err := s.CreateContainer(s.ctx, sandbox, c)
	if err != nil || id == "" {
		s.Fatalf("CreateContainer = %q, %v", id, err)
	}
	return id
}

// look is a complete look at a container.
func (s *scene) look(id string) runtime.Container {
	s.Helper()
	c, err := s.Container(s.ctx, id)
	if err != nil {
		s.Fatalf("Container: %v", err)
	}
	return c
}

// exited waits until a container has ended.
func (s *scene) exited(id string) runtime.Container {
	s.Helper()
	var c runtime.Container
	s.until("the container has exited", func() bool {
		c = s.look(id)
		return c.State == runtime.Exited
	})
	return c
}

// until asks again and again until the answer is yes.
func (s *scene) until(what string, holds func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			s.Fatalf("not within 30s: %s", what)
		case <-tick.C:
		}
	}
}

// want fails the test when an error is not of that class.
func (s *scene) want(what string, got, class error) {
	s.Helper()
	if !errors.Is(got, class) {
		s.Errorf("%s: error %v, want %v", what, got, class)
	}
}

// fine fails the test when there is an error.
func (s *scene) fine(what string, err error) {
	s.Helper()
	if err != nil {
		s.Errorf("%s: %v", what, err)
	}
}

// includes says what of want is not in got.
func includes(got, want map[string]string) error {
	for k, v := range want {
		if got[k] != v {
			return fmt.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	return nil
}

// nobody is an ID that no engine gave away.
func nobody() string { return strings.Repeat("0123456789abcdef", 4) }
