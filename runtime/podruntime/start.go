package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// startContainer brings one container to life. What goes wrong stands in Waiting.
func (s *step) startContainer(ctx context.Context, a plan.Action) error {
	kind := containerType(a.Kind)
	err := s.makeContainer(ctx, a)
	if err == nil {
		s.metrics.containers.Record(1, kind)
		if s.memory.set(s.pod.UID, a.Container, nil) {
			s.cfg.Changed(s.pod.UID)
		}
		return nil
	}
	return s.notStarted(ctx, a.Container, err)
}

// notStarted shows why a container does not run, unless the step was cut.
func (s *step) notStarted(ctx context.Context, container string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	w, ok := errors.AsType[*runtime.WaitingError](err)
	if !ok {
		w = waiting("CreateContainerError", err)
	}
	_, kind := plan.Find(s.pod, container)
	s.metrics.containerErrors.Record(1, containerType(kind), w.Reason)
	s.usersFailed()
	if s.memory.set(s.pod.UID, container, &w.Waiting) {
		s.cfg.Changed(s.pod.UID)
	}
	return w
}

func waiting(reason string, err error) *runtime.WaitingError {
	return &runtime.WaitingError{Waiting: runtime.Waiting{Reason: reason, Message: err.Error()}, Err: err}
}

// failed is waiting with an event.
func (s *step) failed(container, event, reason string, err error) error {
	s.tell(container, true, event, "Error: "+err.Error())
	return waiting(reason, err)
}

func (s *step) makeContainer(ctx context.Context, a plan.Action) (err error) {
	ctx, trace := s.cfg.Observe.Begin(ctx, s.ref(a.Container), "start container")
	defer func() { trace.End(err) }()
	spec, kind := plan.Find(s.pod, a.Container)
	attempt := a.Attempt
	if s.in.Seen.Newest(a.Container) == nil {
		attempt = max(attempt, s.files.lastAttempt(refOf(s.pod), a.Container))
	}
	attempt = s.memory.number(s.pod.UID, a.Container, attempt)
	img, release, err := s.image(ctx, spec)
	if err != nil {
		return err
	}
	defer release()
	m := &making{pod: s.pod, spec: spec, kind: kind, attempt: attempt, img: img, in: s.in}
	defer m.done()
	if err := s.imageVolumes(ctx, m); err != nil {
		return err
	}
	config, err := s.describe(ctx, m)
	if err != nil {
		return s.failed(spec.Name, "Failed", "CreateContainerConfigError", err)
	}
	s.starting(spec)
	done, err := s.begin(ctx, s.pod)
	if err != nil {
		return err
	}
	s.memory.remember(s.pod.UID, a.Container, a.Backoff) // what cannot be started waits like what ends
	id, err := s.createAndStart(ctx, config, a.Unstarted)
	done()
	if err != nil {
		return err
	}
	return s.postStart(ctx, spec, id)
}

// image has a container's image present until release is called.
func (s *step) image(ctx context.Context, spec *v1.Container) (img runtime.Image, release func(), err error) {
	if s.cfg.Images != nil {
		return s.cfg.Images.Ensure(ctx, s.pod, spec, s.ref(spec.Name))
	}
	img, err = s.cfg.Engine.Image(ctx, spec.Image)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		img, err = runtime.Image{ID: spec.Image}, nil
	case errors.Is(err, runtime.ErrNotFound):
		err = s.failed(spec.Name, "ErrImageNeverPull", "ErrImageNeverPull", err)
	}
	return img, func() {}, err
}

// imageVolumes has the images present that the container mounts as volumes, until it is made. Those that no container mounts
// are had present too, as people see by them that a reference is good; that costs no container its start.
func (s *step) imageVolumes(ctx context.Context, m *making) error {
	if s.cfg.Images == nil {
		return nil
	}
	for _, v := range s.pod.Spec.Volumes {
		if v.Image == nil {
			continue
		}
		mounts := func(c *v1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(vm v1.VolumeMount) bool { return vm.Name == v.Name })
		}
		mine := mounts(m.spec)
		if !mine && (s.idle[v.Name] || slices.ContainsFunc(podspec.Containers(s.pod), mounts)) {
			continue // another container's, or tried in this step
		}
		about, name := s.ref(""), ""
		if mine {
			about, name = s.ref(m.spec.Name), m.spec.Name
		}
		want := &v1.Container{Name: name, Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy}
		img, release, err := s.cfg.Images.Ensure(ctx, s.pod, want, about)
		switch {
		case err == nil:
			m.undo = append(m.undo, release)
		case mine || ctx.Err() != nil:
			return err
		}
		if !mine {
			s.idle = with(s.idle, v.Name, true)
			continue
		}
		m.images = with(m.images, v.Name, runtime.Mount{Image: img.ID, UserImage: v.Image.Reference})
	}
	return nil
}

func with[V any](m map[string]V, name string, value V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[name] = value
	return m
}

// describe makes the container's config, and its sandbox's when an earlier step made that.
func (s *step) describe(ctx context.Context, m *making) (*runtime.ContainerConfig, error) {
	if s.config == nil {
		config, _, err := s.sandboxConfig(ctx, s.pod, s.sandbox.Attempt, s.sandbox.Handler, s.in)
		if err != nil {
			return nil, err
		}
		s.config = config
	}
	if s.cfg.Root != "" {
		if err := s.files.makePod(s.pod.UID); err != nil {
			return nil, err
		}
	}
	m.config, m.sandbox = s.config, s.sandbox
	config, err := s.containerConfig(ctx, m)
	if err != nil {
		return nil, err
	}
	if err := makeLogDir(filepath.Join(s.config.LogDir, m.spec.Name)); err != nil {
		return nil, err
	}
	return config, s.mountLastWords(config, m.spec)
}

// startGrace is how long a start of a sandbox or of a container that has begun may go on when its step is cut. containerd, when
// a start is cancelled at a bad moment, keeps a process that CRI can neither stop nor remove (containerd issue 11037).
const startGrace = 5 * time.Second

// createAndStart makes an instance in place of those that were never started. The newest of these goes only when there is the
// new one: its number is then known from that, whatever happens to this agent, and none of them can start beside it.
func (s *step) createAndStart(ctx context.Context, config *runtime.ContainerConfig, unstarted []string) (string, error) {
	name := config.Name
	for _, id := range unstarted[min(1, len(unstarted)):] {
		if err := s.removeContainer(ctx, id, false); err != nil {
			return "", err
		}
	}
	id, err := s.cfg.Engine.CreateContainer(ctx, s.sandbox.ID, config)
	s.pictures.makes(s.pod.UID, err)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx) // nobody wants it any more: nothing has failed
	case err != nil:
		s.files.removeLastWords(config.Pod.UID, config.Name, config.Mounts)
		return "", s.failed(name, "Failed", "CreateContainerError", err)
	}
	s.tell(name, false, "Created", "Container created")
	spec, _ := plan.Find(s.pod, name)
	if len(unstarted) > 0 {
		if err := s.removeContainer(ctx, unstarted[0], false); err != nil {
			return "", err
		}
	}
	s.hookDue(spec, id) // and remains so if the start fails: it may run all the same
	own, stop := outlast(ctx, startGrace)
	defer stop()
	switch err := s.cfg.Engine.StartContainer(own, id); {
	case err != nil && ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", s.failed(name, "Failed", "RunContainerError", anonymous(err, id))
	}
	s.tell(name, false, "Started", "Container started")
	if err := s.files.makeLink(config.Pod, name, id, filepath.Join(config.Sandbox.LogDir, config.LogPath)); err != nil {
		s.cfg.Observe.Logger().Warn("the link to a container's log was not made; next try at the next resync", "container", name, "err", err)
	}
	return id, nil
}

// anonymous is an error without the ID of an instance, so that people are told of a failure that repeats itself as one. What
// was tried they know.
func anonymous(err error, id string) error {
	text := strings.TrimPrefix(err.Error(), "start container "+id+": ")
	return &unnamed{strings.ReplaceAll(text, " "+id, ""), err}
}

type unnamed struct {
	text string
	err  error
}

func (u *unnamed) Error() string { return u.text }
func (u *unnamed) Unwrap() error { return u.err }

// outlast is a context that ends a while after ctx does.
func outlast(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			cancel(context.Cause(ctx))
		case <-own.Done():
		}
	})
	return own, func() { stop(); cancel(nil) }
}

func makeLogDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	return nil
}

func containerType(k plan.Kind) string {
	switch k {
	case plan.Init, plan.Sidecar:
		return "init_container"
	case plan.Ephemeral:
		return "ephemeral_container"
	default:
		return "container"
	}
}
