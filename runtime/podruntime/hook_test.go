package podruntime

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// endless is an engine whose commands never end by themselves.
type endless struct {
	runtime.Engine
	cut     time.Time // when the command was cut off
	stopped time.Time // when the container was asked to stop
	grace   time.Duration
}

func (e *endless) Exec(ctx context.Context, _ string, _ []string) (runtime.ExecResult, error) {
	<-ctx.Done()
	e.cut = time.Now()
	return runtime.ExecResult{}, ctx.Err()
}

func (e *endless) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	e.stopped, e.grace = time.Now(), grace
	return e.Engine.StopContainer(ctx, id, grace)
}

// As with the kubelet, a hook that does not end has all the time that its container has.
func TestAHookThatDoesNotEndGoesOnUntilItsContainerIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endless{}
		n := newNode(t, func(c *Config) { e.Engine, c.Engine = c.Engine, e })
		p := pod("trap '' TERM; sleep 1000")
		p.Spec.TerminationGracePeriodSeconds = new(int64(5))
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c", "sleep 1000"}}}}
		seen, _ := n.sync(p)
		began := time.Now()
		if err := n.Stop(t.Context(), p, seen, runtime.Termination{}); err != nil {
			t.Fatal(err)
		}
		if at := e.stopped.Sub(began); at != 5*time.Second || e.grace != 2*time.Second {
			t.Errorf("the container was asked to stop after %v, with a grace of %v", at, e.grace)
		}
		if at := e.cut.Sub(began); at != 7*time.Second {
			t.Errorf("the hook was cut off after %v", at)
		}
	})
}

func TestHooks(t *testing.T) {
	asked := make(chan *http.Request, 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError) // any answer is a success
		asked <- r
	}))
	defer web.Close()
	u, _ := url.Parse(web.URL)
	n := newNode(t)
	p := pod(polite)
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c", "exit 0"}}},
		PreStop:   &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Host: u.Hostname(), Port: intstr.Parse(u.Port()), Path: "bye?x=1"}},
	}
	seen, _ := n.sync(p)
	if seen.Newest("a").State != runtime.Running {
		t.Fatal("it does not run")
	}
	if err := n.Stop(t.Context(), p, seen, runtime.Termination{}); err != nil {
		t.Fatal(err)
	}
	if r := <-asked; r.URL.String() != "/bye?x=1" || r.UserAgent() != hookUserAgent {
		t.Errorf("asked for %s as %s", r.URL, r.UserAgent())
	}
	if err := n.Stop(t.Context(), p, seen, runtime.Termination{}); err != nil || len(asked) > 0 {
		t.Errorf("the hook ran twice, or %v", err)
	}

	t.Run("what is asked for", func(t *testing.T) {
		said := func(pairs ...string) (out []v1.HTTPHeader) {
			for i := 0; i < len(pairs); i += 2 {
				out = append(out, v1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
			}
			return out
		}
		for _, tt := range []struct {
			rule   string
			get    v1.HTTPGetAction
			url    string
			host   string
			header http.Header
		}{
			{"a path without a slash", v1.HTTPGetAction{Path: "foo"}, "http://h:80/foo", "h:80", http.Header{}},
			{"no path", v1.HTTPGetAction{}, "http://h:80", "h:80", http.Header{}},
			{"an escaped slash stays one", v1.HTTPGetAction{Path: "/a%2Fb?k=v"}, "http://h:80/a%2Fb?k=v", "h:80", http.Header{}},
			{"a path that cannot be parsed goes as it is", v1.HTTPGetAction{Path: "/%zz"}, "http://h:80/%25zz", "h:80", http.Header{}},
			{"https", v1.HTTPGetAction{Path: "/foo", Scheme: v1.URISchemeHTTPS}, "https://h:80/foo", "h:80", http.Header{}},
			{"an own header, twice", v1.HTTPGetAction{HTTPHeaders: said("x-a", "1", "X-A", "2")}, "http://h:80", "h:80", http.Header{"X-A": {"1", "2"}}},
			{"own ones in place of the usual", v1.HTTPGetAction{HTTPHeaders: said("user-agent", "me", "accept", "text/plain")}, "http://h:80", "h:80", http.Header{"User-Agent": {"me"}, "Accept": {"text/plain"}}},
			{"an empty Accept sends none", v1.HTTPGetAction{HTTPHeaders: said("Accept", "")}, "http://h:80", "h:80", http.Header{"Accept": nil}},
			{"Host is the request's", v1.HTTPGetAction{HTTPHeaders: said("Host", "web.example")}, "http://h:80", "web.example", http.Header{"Host": {"web.example"}}},
		} {
			tt.get.Host, tt.get.Port = "h", intstr.FromInt32(80)
			want := http.Header{"User-Agent": {hookUserAgent}, "Accept": {"*/*"}}
			for name, values := range tt.header {
				if want[name] = values; values == nil {
					delete(want, name)
				}
			}
			r, err := n.hookRequest(t.Context(), &p.Spec.Containers[0], "", &tt.get)
			if err != nil {
				t.Errorf("%s: %v", tt.rule, err)
				continue
			}
			if diff := cmp.Diff(want, r.Header); diff != "" || r.URL.String() != tt.url || r.Host != tt.host {
				t.Errorf("%s: %s of %s (-want +got)\n%s", tt.rule, r.URL, r.Host, diff)
			}
		}
	})

	t.Run("one that is sent in a circle fails", func(t *testing.T) {
		round := httptest.NewServer(http.RedirectHandler("/", http.StatusFound))
		defer round.Close()
		u, _ := url.Parse(round.URL)
		n := newNode(t)
		p := pod(polite)
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Host: u.Hostname(), Port: intstr.Parse(u.Port())}}}
		if seen, _ := n.sync(p); seen.Waiting["a"].Reason != "PostStartHookError" {
			t.Errorf("%+v", seen.Waiting)
		}
	})

	t.Run("what speaks plain HTTP is asked so, without credentials", func(t *testing.T) {
		var told []observe.Event
		n := newNode(t, func(c *Config) { c.Observe.Events = events(func(e observe.Event) { told = append(told, e) }) })
		p := pod(polite)
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Host: u.Hostname(), Port: intstr.Parse(u.Port()), Scheme: v1.URISchemeHTTPS, Path: "hi",
			HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "X-Other", Value: "x"}},
		}}}
		seen, _ := n.sync(p)
		r := <-asked
		if c := seen.Newest("a"); c.State != runtime.Running || r.URL.Path != "/hi" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Other") != "x" {
			t.Errorf("%v, asked %s %v", c.State, r.URL, r.Header)
		}
		if !slices.ContainsFunc(told, func(e observe.Event) bool { return e.Reason == "LifecycleHTTPFallback" && e.Warning }) {
			t.Errorf("people were told %+v", told)
		}
	})

	t.Run("a failing postStart stops the container", func(t *testing.T) {
		n := newNode(t)
		p := pod(polite)
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c", "exit 1"}}}}
		p.Spec.TerminationGracePeriodSeconds = new(int64(1))
		seen := n.look(p)
		if _, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: seen}); err != nil {
			t.Fatal(err)
		}
		seen = n.look(p)
		if c := seen.Newest("a"); c.State != runtime.Exited || seen.Waiting["a"].Reason != "PostStartHookError" {
			t.Errorf("%v %+v", c.State, seen.Waiting)
		}
	})
}

func TestAHookThatNobodyWasThereToRunIsRunBeforeTheEnd(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		out      time.Duration // how long nobody is there
		runs     int
		from, to time.Duration // when the container ended
	}{
		{"somebody is back in time", 2 * time.Second, 1, 2 * time.Second, 3 * time.Second},
		{"nobody is back before its time is over", 20 * time.Second, 0, 20 * time.Second, 22 * time.Second},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := pod(polite)
				p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c", "exit 0"}}}}
				n.sync(p)
				start, runs := time.Now(), 0
				away := func(context.Context, runtimetest.Call) error {
					if time.Since(start) < tt.out {
						return runtime.ErrUnavailable
					}
					return nil
				}
				n.engine.Inject("StopContainer", away)
				n.engine.Inject("Exec", func(ctx context.Context, c runtimetest.Call) error {
					err := away(ctx, c)
					if err == nil {
						runs++
					}
					return err
				})
				for range 60 {
					if err := n.Stop(t.Context(), p, n.look(p), runtime.Termination{}); err == nil {
						break
					}
					time.Sleep(time.Second)
				}
				if ended := n.look(p).Newest("a").Finished.Sub(start); runs != tt.runs || ended < tt.from || ended > tt.to {
					t.Errorf("the hook ran %d times, and it ended after %v", runs, ended)
				}
			})
		})
	}
}

// hooked is an engine that counts commands, and on which they may be held up.
type hooked struct {
	runtime.Engine
	ran  atomic.Int32
	hold atomic.Bool
}

func (h *hooked) Exec(ctx context.Context, _ string, _ []string) (runtime.ExecResult, error) {
	h.ran.Add(1)
	if h.hold.Load() {
		<-ctx.Done()
	}
	return runtime.ExecResult{}, ctx.Err()
}

// Field reports kubernetes/kubernetes#122803 and #60053: an agent that was stopped between the start of a container and the end of its
// hook, or was never told that it started, never ran the hook.
func TestAPostStartHookIsRunWhateverComesBetween(t *testing.T) {
	for _, tt := range []struct {
		name    string
		between func(t *testing.T, n *node, h *hooked, p *v1.Pod)
		ran     int32
	}{
		{"nothing", func(_ *testing.T, n *node, _ *hooked, p *v1.Pod) { n.sync(p) }, 1},
		{"the agent is stopped while it runs", func(t *testing.T, n *node, h *hooked, p *v1.Pod) {
			t.Helper()
			h.hold.Store(true)
			n.cut(t, p)
			h.hold.Store(false)
		}, 2},
		{"the agent is stopped as the container starts", func(t *testing.T, n *node, _ *hooked, p *v1.Pod) {
			t.Helper()
			n.engine.Inject("StartContainer", runtimetest.Delay(3*time.Second))
			n.cut(t, p)
		}, 1},
		{"the answer to the start is lost", func(t *testing.T, n *node, _ *hooked, p *v1.Pod) {
			t.Helper()
			n.engine.Inject("StartContainer", runtimetest.Lost(context.DeadlineExceeded))
			if _, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); err != nil {
				t.Fatal(err)
			}
			n.engine.Inject("StartContainer", nil)
			n.sync(p)
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hooked{}
				n := newNode(t, func(c *Config) { h.Engine, c.Engine = c.Engine, h })
				p := pod("sleep 100000")
				p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}
				tt.between(t, n, h, p)
				first := n.look(p).Newest("a")
				other, err := New(n.cfg) // another agent
				if err != nil {
					t.Fatal(err)
				}
				n.Runtime = other
				n.engine.Inject("StartContainer", nil)
				seen, _ := n.sync(p)
				if ran := h.ran.Load(); ran != tt.ran {
					t.Errorf("the hook ran %d times, want %d", ran, tt.ran)
				}
				if c := seen.Newest("a"); c.State != runtime.Running || first == nil || c.ID != first.ID {
					t.Errorf("there is %+v, there was %+v", c, first)
				}
			})
		})
	}
}

// cut has an agent be stopped a second after it has begun a step.
func (n *node) cut(t *testing.T, p *v1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := n.Sync(ctx, p, runtime.SyncInput{Seen: n.look(p)}); err == nil {
		t.Error("the step was not cut")
	}
	time.Sleep(time.Minute)
}
