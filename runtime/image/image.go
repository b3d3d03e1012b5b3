package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// hold is how long an image is kept after the container it was brought for exists.
const hold = time.Minute

// Config describes a Store. Images is required.
type Config struct {
	Images   runtime.Images
	Parallel int // pulls at a time; 0 means one

	Observe observe.To
}

// Store brings images in and guards those in use. All methods are safe for concurrent use.
type Store struct {
	cfg   Config
	room  *semaphore.Weighted
	waits *backoff

	mu    sync.Mutex // guards the rest
	holds map[string]*held
	busy  map[string]int // refs that are looked for or pulled right now
}

// held is an image that must stay.
type held struct {
	users int
	until time.Time
}

// New makes a Store at rest.
func New(cfg Config) (*Store, error) {
	if cfg.Images == nil {
		return nil, errors.New("image: Images is required")
	}
	return &Store{
		cfg: cfg, room: semaphore.NewWeighted(int64(max(1, cfg.Parallel))), waits: newBackoff(),
		holds: map[string]*held{}, busy: map[string]int{},
	}, nil
}

// Ensure has the image of a container present and held until release is called, which may be done more than once.
// Events are told about the object in about. Errors are *runtime.WaitingError, or those of the context.
func (s *Store) Ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, about observe.Ref) (img runtime.Image, release func(), err error) {
	ref, err := withTag(c.Image)
	if err != nil {
		return img, nil, s.fail(about, "InspectFailed", "InvalidImageName", fmt.Errorf("image %q of container %s cannot be parsed: %w", c.Image, c.Name, err))
	}
	s.begin(ref)
	defer s.end(ref)
	img, err = s.bring(ctx, pod, c, ref, about)
	if err != nil {
		return img, nil, err
	}
	return img, s.keep(img.ID), nil
}

// bring finds or pulls an image.
func (s *Store) bring(ctx context.Context, pod *v1.Pod, c *v1.Container, ref string, about observe.Ref) (runtime.Image, error) {
	policy := c.ImagePullPolicy
	if policy != v1.PullAlways {
		img, err := s.cfg.Images.Image(ctx, ref)
		switch {
		case err == nil:
			s.tell(about, false, "Pulled", fmt.Sprintf("Container image %q already present on machine", c.Image))
			return img, nil
		case !errors.Is(err, runtime.ErrNotFound):
			return img, s.fail(about, "InspectFailed", "ImageInspectError", fmt.Errorf("inspect image %q: %w", c.Image, err))
		case policy == v1.PullNever:
			return img, s.fail(about, "ErrImageNeverPull", "ErrImageNeverPull", fmt.Errorf("container image %q is not present with pull policy of Never", c.Image))
		}
	}
	key := string(pod.UID) + "_" + c.Image
	if until, last := s.waits.due(key, time.Now()); !until.IsZero() {
		message := fmt.Sprintf("Back-off pulling image %q", c.Image)
		if last != nil {
			message += ": " + last.Error()
		}
		s.tell(about, false, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.Image))
		return runtime.Image{}, &runtime.WaitingError{Waiting: runtime.Waiting{Reason: "ImagePullBackOff", Message: message, Until: until}, Err: last}
	}
	return s.pull(ctx, c, ref, key, about)
}

func (s *Store) pull(ctx context.Context, c *v1.Container, ref, key string, about observe.Ref) (runtime.Image, error) {
	if err := s.room.Acquire(ctx, 1); err != nil {
		return runtime.Image{}, fmt.Errorf("wait for another image pull: %w", err)
	}
	defer s.room.Release(1)
	if c.ImagePullPolicy != v1.PullAlways { // somebody may just have brought it
		if img, err := s.cfg.Images.Image(ctx, ref); err == nil {
			return img, nil
		}
	}
	s.tell(about, false, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
	start := time.Now()
	id, err := s.cfg.Images.PullImage(ctx, runtime.PullRequest{Image: ref})
	if err == nil {
		var img runtime.Image
		if img, err = s.cfg.Images.Image(ctx, id); err == nil {
			s.waits.forget(key)
			s.tell(about, false, "Pulled", fmt.Sprintf("Successfully pulled image %q in %s. Image size: %d bytes.", c.Image, time.Since(start).Round(time.Millisecond), img.Size))
			return img, nil
		}
		err = fmt.Errorf("inspect the pulled image: %w", err)
	}
	if ctx.Err() != nil {
		return runtime.Image{}, fmt.Errorf("pull image %q: %w", c.Image, context.Cause(ctx))
	}
	failed := s.fail(about, "Failed", reasonOf(err), fmt.Errorf("pull image %q: %w", c.Image, err))
	s.waits.failed(key, failed, time.Now())
	return runtime.Image{}, failed
}

// reasonOf is the reason a runtime gave at the head of its error, else the ordinary one.
func reasonOf(err error) string {
	for _, known := range []string{"RegistryUnavailable", "SignatureValidationFailed"} {
		if strings.HasPrefix(err.Error(), known) {
			return known
		}
	}
	return "ErrImagePull"
}

func (s *Store) fail(about observe.Ref, event, reason string, err error) error {
	s.tell(about, true, event, err.Error())
	return &runtime.WaitingError{Waiting: runtime.Waiting{Reason: reason, Message: err.Error()}, Err: err}
}

func (s *Store) tell(about observe.Ref, warning bool, reason, message string) {
	s.cfg.Observe.Event(observe.Event{About: about, Warning: warning, Reason: reason, Message: message})
}

// ListImages lists what the engine has.
func (s *Store) ListImages(ctx context.Context) ([]runtime.Image, error) {
	return s.cfg.Images.ListImages(ctx)
}

// RemoveImage removes an image that nobody is about to use, and refuses with runtime.ErrInUse for the others. The images
// of containers that exist are the caller's to know.
func (s *Store) RemoveImage(ctx context.Context, id string) error {
	refs, inUse := s.inUse(id, time.Now())
	for _, ref := range refs {
		if img, err := s.cfg.Images.Image(ctx, ref); err == nil && img.ID == id {
			inUse = true
		}
	}
	if inUse {
		return fmt.Errorf("image %s is about to be used by a container: %w", id, runtime.ErrInUse)
	}
	return s.cfg.Images.RemoveImage(ctx, id)
}

// inUse says whether an image is held, and which refs are being looked for.
func (s *Store) inUse(id string, now time.Time) (busy []string, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, h := range s.holds {
		if h.users == 0 && !h.until.After(now) {
			delete(s.holds, key)
		}
	}
	for ref := range s.busy {
		busy = append(busy, ref)
	}
	slices.Sort(busy)
	return busy, s.holds[id] != nil
}

func (s *Store) begin(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[ref]++
}

func (s *Store) end(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[ref]--; s.busy[ref] == 0 {
		delete(s.busy, ref)
	}
}

// keep holds an image until a minute after release.
func (s *Store) keep(id string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[id]
	if h == nil {
		h = new(held)
		s.holds[id] = h
	}
	h.users++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.users--
		h.until = time.Now().Add(hold)
	})
}

// withTag adds the tag that is meant when a name has neither tag nor digest. Short names stay short: which registry they
// mean is the engine's to know.
func withTag(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}
