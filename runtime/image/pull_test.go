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
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// rings are credentials by pod.
type rings map[string][]runtime.Credential

func (r rings) Lookup(_ context.Context, pod *v1.Pod, _ string) ([]runtime.Credential, []string, error) {
	return r[pod.Name], nil, nil
}

// of is a credential of a secret.
func of(user, secret string) runtime.Credential {
	return runtime.Credential{
		Auth: runtime.Auth{Username: user}, Hash: "hash-of-" + user,
		Secret: &runtime.ObjectRef{Namespace: "ns", Name: secret, UID: types.UID("uid-" + secret)},
	}
}

func pod(name string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "ns", name, types.UID("u-"+name)
	return p
}

// diary writes down events.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) Event(e observe.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, e.Reason+": "+e.Message)
}

func (d *diary) count(beginning string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lines {
		if strings.HasPrefix(l, beginning) {
			n++
		}
	}
	return n
}

func store(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ensure(t *testing.T, s *Store, pod *v1.Pod, image string, policy v1.PullPolicy) (reason, message string) {
	t.Helper()
	_, release, err := s.Ensure(t.Context(), pod, container(image, policy), observe.Ref{})
	if err == nil {
		release()
		return "", ""
	}
	w, ok := errors.AsType[*runtime.WaitingError](err)
	if !ok {
		t.Fatal(err)
	}
	return w.Reason, w.Message
}

func TestCredentialsAreTriedInOrder(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		has    []runtime.Credential
		tried  []string // users; "-" is anonymous
		reason string
	}{
		{"none: anonymously", nil, []string{"-"}, "ErrImagePull"},
		{"until one opens", []runtime.Credential{of("old", "a"), of("me", "b"), of("other", "c")}, []string{"old", "me"}, ""},
		{"to the end, and then not anonymously", []runtime.Credential{of("old", "a"), of("other", "b")}, []string{"old", "other"}, "ErrImagePull"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			h := newHost()
			h.login = map[string]string{"far:1": "me"}
			reason, _ := ensure(t, store(t, Config{Images: h, Credentials: rings{"web": tt.has}}), pod("web"), "far:1", "")
			var tried []string
			for _, r := range h.asked {
				user := "-"
				if r.Auth != nil {
					user = r.Auth.Username
				}
				tried = append(tried, user)
			}
			if diff := cmp.Diff(tt.tried, tried); diff != "" || reason != tt.reason {
				t.Errorf("reason %q (-want +got)\n%s", reason, diff)
			}
		})
	}
}

func TestAPullSaysForWhomItIs(t *testing.T) {
	h := newHost()
	p := pod("web")
	p.Annotations = map[string]string{"a": "b"}
	ensure(t, store(t, Config{Images: h}), p, "far:1", "")
	r := h.asked[0]
	if r.Sandbox == nil || r.Sandbox.Pod != (runtime.PodRef{Namespace: "ns", Name: "web", UID: p.UID}) || r.Annotations["a"] != "b" {
		t.Errorf("%+v", r)
	}
}

func TestReasonAndMessageOfAFailure(t *testing.T) {
	one := errors.New
	several := func(a, b string) error { return utilerrors.NewAggregate([]error{errors.New(a), errors.New(b)}) }
	for _, tt := range []struct {
		rule            string
		err             error
		reason, message string
	}{
		{"any", one("no route"), "ErrImagePull", "no route"},
		{"a registry that is away", one("RegistryUnavailable: 503"), "RegistryUnavailable", "image pull failed for i:1 because the registry is unavailable: 503"},
		{"a signature", one("SignatureValidationFailed"), "SignatureValidationFailed", "image pull failed for i:1 because the signature validation failed"},
		{"the word further on is another thing", one("tag RegistryUnavailable"), "ErrImagePull", "tag RegistryUnavailable"},
		{"several credentials, one reason", several("RegistryUnavailable: a", "RegistryUnavailable: b"), "RegistryUnavailable", "image pull failed for i:1 because the registry is unavailable: a"},
		{"several credentials, two reasons", several("RegistryUnavailable", "denied"), "ErrImagePull", "[RegistryUnavailable, denied]"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if reason, message := judge("i:1", tt.err); reason != tt.reason || message != tt.message {
				t.Errorf("%s, %s", reason, message)
			}
		})
	}
}

func TestEveryReason(t *testing.T) {
	broken := errors.New("boom")
	for _, tt := range []struct {
		rule            string
		change          func(*Config, *host)
		image           string
		policy          v1.PullPolicy
		reason, message string
		event           string
	}{
		{"the name is none", nil, "A b", "", "InvalidImageName", `image "A b" of container c cannot be parsed`, "InspectFailed: "},
		{"not here, and never pulled", nil, "far:1", v1.PullNever, "ErrImageNeverPull", `Container image "far:1" is not present with pull policy of Never`, "ErrImageNeverPull: "},
		{"the engine cannot look", func(c *Config, h *host) { c.Images = blind{h, broken} }, "far:1", "", "ImageInspectError", `Failed to inspect image "far:1": boom`, "InspectFailed: "},
		{"the pull fails", func(_ *Config, h *host) { h.err = broken }, "far:1", "", "ErrImagePull", "boom", `Failed: Failed to pull image "far:1": boom`},
		{"a secret is broken", func(c *Config, _ *host) { c.Credentials = nobody{broken} }, "far:1", "", "ErrImagePull", "boom", `Failed: Failed to pull image "far:1": boom`},
		{"nothing can be recorded", func(c *Config, _ *host) { c.Root = "/dev/null" }, "far:1", "", "ErrImagePull", "record the intent to pull: ", "Failed: Failed to pull image"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			h, d := newHost(), &diary{}
			cfg := Config{Images: h, Observe: observe.To{Events: d}}
			if tt.change != nil {
				tt.change(&cfg, h)
			}
			reason, message := ensure(t, store(t, cfg), pod("web"), tt.image, tt.policy)
			if reason != tt.reason || !strings.HasPrefix(message, tt.message) || d.count(tt.event) != 1 || d.count("Failed: Error: "+tt.reason) != 1 {
				t.Errorf("%s, %s, events %q", reason, message, d.lines)
			}
		})
	}
}

type blind struct {
	*host
	err error
}

func (b blind) Image(context.Context, string) (runtime.Image, error) { return runtime.Image{}, b.err }

type nobody struct{ err error }

func (n nobody) Lookup(context.Context, *v1.Pod, string) ([]runtime.Credential, []string, error) {
	return nil, nil, n.err
}

// lacking has no credentials: pull secrets that the pod names are missing.
type lacking []string

func (l lacking) Lookup(context.Context, *v1.Pod, string) ([]runtime.Credential, []string, error) {
	return nil, l, nil
}

// Field report kubernetes/kubernetes#138432: each pull of a public image warned of a secret that it does not need.
func TestOfMissingSecretsIsToldWhenAPullHasFailed(t *testing.T) {
	const told = "FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (gone, lost); attempting to pull the image may not succeed."
	for _, tt := range []struct {
		rule   string
		policy v1.PullPolicy
		fails  bool
		want   int
	}{
		{"a pull that works says nothing", "", false, 0},
		{"one that fails does", "", true, 1},
		{"an image that may not be pulled needs none", v1.PullNever, true, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			h, d := newHost(), &diary{}
			if tt.fails {
				h.err = errors.New("denied")
			}
			s := store(t, Config{Images: h, Credentials: lacking{"gone", "lost"}, Observe: observe.To{Events: d}})
			for range 2 { // the second time it is backed off, and not pulled
				ensure(t, s, pod("web"), "far:1", tt.policy)
			}
			if d.count(told) != tt.want || d.count("FailedToRetrieve") != tt.want {
				t.Errorf("events %q", d.lines)
			}
		})
	}
}

func TestPullsInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		for i := range 20 {
			h.remote[fmt.Sprintf("n%d:1", i)] = runtime.Image{ID: fmt.Sprint(i)}
		}
		s := store(t, Config{Images: h, QPS: 2, Burst: 3})
		refused := 0
		pull := func(i int) {
			switch reason, message := ensure(t, s, pod("web"), fmt.Sprintf("n%d:1", i), ""); {
			case reason == "ErrImagePull" && message == "pull QPS exceeded":
				refused++
			case reason != "":
				t.Errorf("%s: %s", reason, message)
			}
		}
		for i := range 5 {
			pull(i)
		}
		if refused != 2 {
			t.Errorf("%d refused of five at once", refused)
		}
		time.Sleep(time.Second)
		for i := 5; i < 8; i++ {
			pull(i)
		}
		if refused != 3 {
			t.Errorf("%d refused after a second", refused)
		}
	})
}

// slowly tells of progress each second, a given number of times, and then of no more.
type slowly struct {
	*host
	steps int
}

func (p slowly) PullImage(ctx context.Context, r runtime.PullRequest) (string, error) {
	for range p.steps {
		time.Sleep(time.Second)
		r.Progress(1, 2)
	}
	select {
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return p.host.PullImage(ctx, r)
}

func TestAPullWithoutProgressEnds(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		deadline time.Duration
		steps    int
		message  string
		took     time.Duration
	}{
		{"none from the start", 2 * time.Second, 0, "no progress for 2s", 2 * time.Second},
		{"none any more", 2 * time.Second, 5, "no progress for 2s", 7 * time.Second},
		{"enough", 4 * time.Second, 5, "", 8 * time.Second},
		{"no deadline", 0, 0, "", 3 * time.Second},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store(t, Config{Images: slowly{newHost(), tt.steps}, Deadline: tt.deadline, Credentials: rings{"web": {of("a", "a"), of("b", "b")}}})
				start := time.Now()
				_, message := ensure(t, s, pod("web"), "far:1", "")
				if message != tt.message || time.Since(start) != tt.took {
					t.Errorf("%q after %s", message, time.Since(start))
				}
			})
		})
	}
}

// A registry lets nobody in for half an hour; then the pull secret is there.
func TestCase_c019_ASecretThatComesLaterIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, has := newHost(), &diary{}, rings{}
		h.login = map[string]string{"far:1": "me"}
		s := store(t, Config{Images: h, Credentials: has, Observe: observe.To{Events: d}})
		var last time.Time
		try := func() bool {
			_, release, err := s.Ensure(t.Context(), pod("web"), container("far:1", ""), observe.Ref{})
			if err == nil {
				release()
				return true
			}
			if w, _ := errors.AsType[*runtime.WaitingError](err); !w.Until.IsZero() {
				last = w.Until
				time.Sleep(time.Until(w.Until))
			}
			return false
		}
		for start := time.Now(); time.Since(start) < 30*time.Minute; {
			if try() {
				t.Fatal("in without a secret")
			}
		}
		if attempts := h.pulls; attempts < 9 || d.count("Failed: Failed to pull image") != attempts {
			t.Errorf("%d attempts, %d events of their causes", attempts, d.count("Failed: Failed to pull image"))
		}
		has["web"] = []runtime.Credential{of("me", "late")}
		now := time.Now()
		for !try() {
		}
		if waited := time.Since(now); waited > 300*time.Second || last.IsZero() {
			t.Errorf("in after %s more", waited)
		}
	})
}

// One slow pull, an image that is here, and one that is here with policy Always.
func TestCase_c020_ASlowPullHoldsUpNobodyElse(t *testing.T) {
	for _, parallel := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHost(), &diary{}
			s := store(t, Config{Images: slowImage{h, "far:1", 2 * time.Minute}, Parallel: parallel, Observe: observe.To{Events: d}})
			start := time.Now()
			took := map[string]time.Duration{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for name, c := range map[string]*v1.Container{
				"slow": container("far:1", v1.PullIfNotPresent), "again": container("far:1", v1.PullIfNotPresent),
				"always": container("here:1", v1.PullAlways), "here": container("here:1", v1.PullIfNotPresent),
			} {
				all.Go(func() {
					if name == "always" {
						time.Sleep(time.Second) // the slow one is first
					}
					_, _, err := s.Ensure(t.Context(), pod(name), c, observe.Ref{})
					mu.Lock()
					defer mu.Unlock()
					if took[name] = time.Since(start); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			all.Wait()
			always := time.Second
			if parallel == 1 {
				always = 2 * time.Minute
			}
			want := map[string]time.Duration{"slow": 2 * time.Minute, "again": 2 * time.Minute, "always": always, "here": 0}
			if diff := cmp.Diff(want, took); diff != "" || h.pulls != 2 {
				t.Errorf("%d at a time: %d pulls (-want +got)\n%s", parallel, h.pulls, diff)
			}
			if queued := d.count(`Pulling: Pulling image "here:1" waits for other images to be pulled`); queued != 2-parallel {
				t.Errorf("%d at a time: %d events that it waits", parallel, queued)
			}
		})
	}
}

type slowImage struct {
	*host
	image string
	takes time.Duration
}

func (s slowImage) PullImage(ctx context.Context, r runtime.PullRequest) (string, error) {
	if r.Image == s.image {
		time.Sleep(s.takes)
	}
	return s.host.PullImage(ctx, r)
}

// A hundred and fifty pods want three images at once.
func TestCase_c188_EachImageIsPulledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.slow = 10 * time.Second
		for i := range 3 {
			h.remote[fmt.Sprintf("n%d:1", i)] = runtime.Image{ID: fmt.Sprint(i)}
		}
		s := store(t, Config{Images: h, Parallel: 3, QPS: 5, Burst: 10, Root: t.TempDir()})
		start := time.Now()
		var all sync.WaitGroup
		for i := range 150 {
			all.Go(func() {
				if reason, message := ensure(t, s, pod(fmt.Sprint(i)), fmt.Sprintf("n%d:1", i%3), v1.PullIfNotPresent); reason != "" {
					t.Errorf("%s: %s", reason, message)
				}
			})
		}
		all.Wait()
		if h.pulls != 3 || time.Since(start) != 10*time.Second {
			t.Errorf("%d pulls, all there after %s", h.pulls, time.Since(start))
		}
	})
}

func TestWaitingForATurnEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.slow = time.Hour
		s := store(t, Config{Images: h, Parallel: 5})
		go func() { _, _, _ = s.Ensure(t.Context(), pod("a"), container("far:1", ""), observe.Ref{}) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := s.Ensure(ctx, pod("b"), container("far:1", ""), observe.Ref{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.turns.taken) != 0 {
			t.Error("turns are kept for ever")
		}
	})
}
