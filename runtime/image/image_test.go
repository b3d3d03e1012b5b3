package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// host is an engine's images: those that are here, and those a registry has.
type host struct {
	mu     sync.Mutex
	here   map[string]runtime.Image
	remote map[string]runtime.Image
	err    error         // of each pull
	slow   time.Duration // of each pull
	pulls  int
	most   int // pulls at once
	now    int
	login  map[string]string // user by image; others are for everybody
	asked  []runtime.PullRequest
}

func (h *host) Image(_ context.Context, ref string) (runtime.Image, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, img := range h.here {
		if name == ref || img.ID == ref {
			return img, nil
		}
	}
	return runtime.Image{}, runtime.ErrNotFound
}

func (h *host) PullImage(ctx context.Context, r runtime.PullRequest) (string, error) {
	h.mu.Lock()
	h.pulls++
	h.now++
	h.most = max(h.most, h.now)
	h.mu.Unlock()
	defer func() { h.mu.Lock(); h.now--; h.mu.Unlock() }()
	select {
	case <-time.After(h.slow):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, r)
	if user := h.login[r.Image]; user != "" && (r.Auth == nil || r.Auth.Username != user) {
		return "", errors.New("unauthorized")
	}
	img, ok := h.remote[r.Image]
	if !ok || h.err != nil {
		return "", errors.Join(h.err, fmt.Errorf("%s: not there", r.Image))
	}
	h.here[r.Image] = img
	return img.ID, nil
}

func (h *host) ListImages(context.Context) ([]runtime.Image, error) { return nil, nil }

func (h *host) RemoveImage(_ context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, img := range h.here {
		if img.ID == id {
			delete(h.here, name)
		}
	}
	return nil
}

func newHost() *host {
	return &host{here: map[string]runtime.Image{"here:1": {ID: "h"}}, remote: map[string]runtime.Image{"far:1": {ID: "f"}, "far:latest": {ID: "l"}, "here:1": {ID: "h2"}}}
}

func newStore(t *testing.T, h *host, parallel int) *Store {
	t.Helper()
	s, err := New(Config{Images: h, Parallel: parallel})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func container(image string, policy v1.PullPolicy) *v1.Container {
	return &v1.Container{Name: "c", Image: image, ImagePullPolicy: policy}
}

func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		image  string
		policy v1.PullPolicy
		id     string
		reason string
		pulls  int
	}{
		{"present, if not present: no pull", "here:1", v1.PullIfNotPresent, "h", "", 0},
		{"present, never: no pull", "here:1", v1.PullNever, "h", "", 0},
		{"present, always: pulled", "here:1", v1.PullAlways, "h2", "", 1},
		{"absent, if not present: pulled", "far:1", v1.PullIfNotPresent, "f", "", 1},
		{"absent, never: waits", "far:1", v1.PullNever, "", "ErrImageNeverPull", 0},
		{"no tag means latest", "far", v1.PullIfNotPresent, "l", "", 1},
		{"nowhere", "gone:1", v1.PullIfNotPresent, "", "ErrImagePull", 1},
		{"no name of an image", "UPPER:1", v1.PullIfNotPresent, "", "InvalidImageName", 0},
		{"a template that was not rendered", "${IMAGE}", v1.PullIfNotPresent, "", "InvalidImageName", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			img, release, err := newStore(t, h, 0).Ensure(t.Context(), &v1.Pod{}, container(tt.image, tt.policy), observe.Ref{})
			reason := ""
			if w, ok := errors.AsType[*runtime.WaitingError](err); ok {
				reason = w.Reason
			}
			if img.ID != tt.id || reason != tt.reason || h.pulls != tt.pulls || (err == nil) != (release != nil) {
				t.Errorf("image %q, reason %q, %d pulls, %v", img.ID, reason, h.pulls, err)
			}
		})
	}
}

func TestPullBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		s := newStore(t, h, 0)
		pod := &v1.Pod{}
		pod.UID = "u"
		var waits []time.Duration
		for range 8 {
			_, _, err := s.Ensure(t.Context(), pod, container("gone:1", v1.PullIfNotPresent), observe.Ref{})
			if w, _ := errors.AsType[*runtime.WaitingError](err); w == nil || w.Reason != "ErrImagePull" {
				t.Fatal(err)
			}
			_, _, err = s.Ensure(t.Context(), pod, container("gone:1", v1.PullIfNotPresent), observe.Ref{})
			w, _ := errors.AsType[*runtime.WaitingError](err)
			if w == nil || w.Reason != "ImagePullBackOff" || !strings.HasPrefix(w.Message, `Back-off pulling image "gone:1": ErrImagePull: `) {
				t.Fatal(err)
			}
			waits = append(waits, time.Until(w.Until)/time.Second)
			time.Sleep(time.Until(w.Until))
		}
		if diff := cmp.Diff([]time.Duration{10, 20, 40, 80, 160, 300, 300, 300}, waits); diff != "" {
			t.Errorf("seconds (-want +got)\n%s", diff)
		}
		other := pod.DeepCopy()
		other.UID = "v"
		before := h.pulls
		if _, _, err := s.Ensure(t.Context(), other, container("gone:1", v1.PullIfNotPresent), observe.Ref{}); err == nil || h.pulls != before+1 {
			t.Error("another pod waits for this one's failures")
		}
	})
}

func TestRegistryReasonsAreShown(t *testing.T) {
	h := newHost()
	h.err = errors.New("SignatureValidationFailed: no key")
	_, _, err := newStore(t, h, 0).Ensure(t.Context(), &v1.Pod{}, container("far:1", ""), observe.Ref{})
	if w, _ := errors.AsType[*runtime.WaitingError](err); w == nil || w.Reason != "SignatureValidationFailed" {
		t.Error(err)
	}
}

func TestPullsAtOnce(t *testing.T) {
	for _, parallel := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			h.slow = time.Second
			for i := range 6 {
				h.remote[fmt.Sprintf("n%d:1", i)] = runtime.Image{ID: fmt.Sprint(i)}
			}
			s := newStore(t, h, parallel)
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					if _, _, err := s.Ensure(t.Context(), &v1.Pod{}, container(fmt.Sprintf("n%d:1", i), ""), observe.Ref{}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if h.most != max(1, parallel) {
				t.Errorf("%d pulls at once, want %d", h.most, max(1, parallel))
			}
		})
	}
}

func TestOnePullServesAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.slow = time.Second
		s := newStore(t, h, 1)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, _, _ = s.Ensure(t.Context(), &v1.Pod{}, container("far:1", v1.PullIfNotPresent), observe.Ref{})
			})
		}
		wg.Wait()
		if h.pulls != 1 {
			t.Errorf("%d pulls", h.pulls)
		}
	})
}

func TestHeldImagesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newHost(), 0)
		img, release, err := s.Ensure(t.Context(), &v1.Pod{}, container("here:1", ""), observe.Ref{})
		if err != nil {
			t.Fatal(err)
		}
		inUse := func() bool { return errors.Is(s.RemoveImage(t.Context(), img.ID), runtime.ErrInUse) }
		if !inUse() {
			t.Error("a held image was removed")
		}
		release()
		release()
		time.Sleep(hold - time.Second)
		if !inUse() {
			t.Error("it was removed before the minute was over")
		}
		time.Sleep(time.Second)
		if inUse() {
			t.Error("it is held for ever")
		}
	})
}

func TestAnImageIsHeldWhileItIsPulled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.slow = time.Second
		s := newStore(t, h, 0)
		go func() { _, _, _ = s.Ensure(t.Context(), &v1.Pod{}, container("here:1", v1.PullAlways), observe.Ref{}) }()
		synctest.Wait()
		if err := s.RemoveImage(t.Context(), "h"); !errors.Is(err, runtime.ErrInUse) {
			t.Errorf("removed under a pull: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	})
}

func TestACutPullIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.slow = time.Minute
		s := newStore(t, h, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := s.Ensure(ctx, &v1.Pod{}, container("far:1", ""), observe.Ref{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		h.slow = 0
		if _, _, err := s.Ensure(t.Context(), &v1.Pod{}, container("far:1", ""), observe.Ref{}); err != nil {
			t.Errorf("it waits after being cut: %v", err)
		}
	})
}
