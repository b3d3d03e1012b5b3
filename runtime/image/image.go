package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// hold is how long an image is kept after the container it was brought for exists.
const hold = time.Minute

// Credentials finds what may open the registry of an image for a pod, in the order in which it is tried. The repository is
// the name of the image with its registry, without tag and digest. missing are pull secrets that the pod names and that cannot be
// read: no error, but people are told of them should the pull fail. runtime/image/keyring does.
type Credentials interface {
	Lookup(ctx context.Context, pod *v1.Pod, repository string) (found []runtime.Credential, missing []string, err error)
}

// Config describes a Store. Images is required.
type Config struct {
	Images      runtime.Images
	Credentials Credentials // nil: every pull is anonymous

	Parallel int     // pulls at a time; 0 means one
	QPS      float64 // pulls begun each second in the long run; one too many fails at once; 0: as many as there are
	Burst    int     // pulls begun at once while QPS is set; below one means one

	// Deadline ends a pull that makes no progress for so long; 0: none. Only for engines that call PullRequest.Progress: with
	// others it bounds the whole pull. containerd and CRI-O have such a deadline of their own.
	Deadline time.Duration

	// Root is where image_manager lies, the records of who may use which image, in the kubelet's format. Empty: nothing is
	// recorded, and who can run a pod here can use every image here.
	Root   string
	Verify Policy   // which images on this host are only for those who may pull them; empty: NeverVerifyPreloadedImages
	Exempt []string // with NeverVerifyAllowlistedImages: repositories for everybody, as written in pods; "/*" at the end: all below

	Observe observe.To
}

// Store brings images in and guards those in use. All methods are safe for concurrent use.
type Store struct {
	cfg     Config
	log     *slog.Logger
	room    *semaphore.Weighted
	limit   *limiter
	turns   turns
	waits   *backoff
	records *records
	metrics *metrics

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
	if cfg.QPS < 0 || cfg.Deadline < 0 {
		return nil, fmt.Errorf("image: QPS %v and Deadline %v must not be negative", cfg.QPS, cfg.Deadline)
	}
	r, err := newRecords(&cfg)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	m, err := newMetrics(cfg.Observe)
	if err != nil {
		return nil, err
	}
	return &Store{
		cfg: cfg, log: cfg.Observe.Logger(), room: semaphore.NewWeighted(int64(max(1, cfg.Parallel))), waits: newBackoff(),
		limit: newLimiter(cfg.QPS, cfg.Burst), records: r, metrics: m, holds: map[string]*held{}, busy: map[string]int{},
	}, nil
}

// Ensure has the image of a container present and held until release is called, which may be done more than once.
// Events are told about the object in about. Errors are *runtime.WaitingError, or those of the context.
func (s *Store) Ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, about observe.Ref) (img runtime.Image, release func(), err error) {
	w := &wish{Store: s, pod: pod, c: c, about: about}
	defer w.count()
	if err := w.name(); err != nil {
		err = w.fail("InspectFailed", "InvalidImageName", fmt.Sprintf("image %q of container %s cannot be parsed: %v", c.Image, c.Name, err), err)
		return img, nil, w.refuse(err)
	}
	s.begin(w.ref)
	defer s.end(w.ref)
	s.records.recover(ctx)
	if img, err = w.bring(ctx); err != nil {
		return img, nil, w.refuse(err)
	}
	return img, s.keep(img.ID), nil
}

// ListImages lists what the engine has. Records of images that are gone are forgotten.
func (s *Store) ListImages(ctx context.Context) ([]runtime.Image, error) {
	before := time.Now()
	list, err := s.cfg.Images.ListImages(ctx)
	if err == nil {
		s.records.prune(list, before)
	}
	return list, err
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
	if err := s.cfg.Images.RemoveImage(ctx, id); err != nil {
		return err
	}
	s.records.forget(id)
	return nil
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
