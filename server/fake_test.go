package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "t0ken"

type pods []*v1.Pod

func (p pods) Pods() []*v1.Pod { return p }

// podOf makes a pod; names that begin with init or debug are containers of those kinds.
func podOf(name string, uid types.UID, names ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
	for _, n := range names {
		c := v1.Container{Name: n, Image: "busybox", TTY: n == "shell"}
		switch {
		case strings.HasPrefix(n, "init"):
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case strings.HasPrefix(n, "debug"):
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(c)})
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// logsFunc is a server.Logs.
type logsFunc func(ctx context.Context, pod *v1.Pod, container string, previous bool, o logs.Options) (io.ReadCloser, error)

func (f logsFunc) Logs(ctx context.Context, pod *v1.Pod, container string, previous bool, o logs.Options) (io.ReadCloser, error) {
	return f(ctx, pod, container, previous, o)
}

// streams notes sessions and answers 200 in place of a switch of protocols.
type streams struct {
	got []server.Session
	err error
}

func (s *streams) open(x server.Session) (http.Handler, error) {
	s.got = append(s.got, x)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "taken over") }), s.err
}

func (s *streams) Exec(_ context.Context, x server.Session) (http.Handler, error) { return s.open(x) }

func (s *streams) Attach(_ context.Context, x server.Session) (http.Handler, error) { return s.open(x) }

func (s *streams) PortForward(_ context.Context, x server.Session) (http.Handler, error) {
	return s.open(x)
}

type running []runtime.Pod

func (r running) Pods(context.Context) ([]runtime.Pod, error) { return r, nil }

// role is an Access for bearer tokens that name what may be done: "get nodes/pods".
type role struct{}

func (role) Authenticate(r *http.Request) (*authnv1.UserInfo, error) {
	right, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, errors.New("no token")
	}
	return &authnv1.UserInfo{Username: right}, nil
}

func (role) Authorize(_ context.Context, user *authnv1.UserInfo, verb, resource, subresource string) (bool, error) {
	if user.Username == "broken" {
		return false, errors.New("nobody answers")
	}
	return user.Username == verb+" "+resource+"/"+subresource, nil
}

// metric is an observe.Metrics that remembers values by name and labels.
type metric struct {
	mu     sync.Mutex
	values map[string]float64
}

func (m *metric) Counter(name, _ string, _ ...string) (observe.Metric, error) {
	return series{m, name, true}, nil
}

func (m *metric) Gauge(name, _ string, _ ...string) (observe.Metric, error) {
	return series{m, name, false}, nil
}

func (m *metric) Histogram(name, _ string, _ []float64, _ ...string) (observe.Metric, error) {
	return series{m, name, true}, nil
}

type series struct {
	m    *metric
	name string
	add  bool
}

func (s series) Record(v float64, labels ...string) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	key := s.name + "{" + strings.Join(labels, ",") + "}"
	if s.m.values == nil {
		s.m.values = map[string]float64{}
	}
	if s.add {
		v += s.m.values[key]
	}
	s.m.values[key] = v
}
func (s series) Forget(...string) {}

// node is a server with the usual pods and the admin's token.
func node(t testing.TB, change func(*server.Config)) http.Handler {
	t.Helper()
	cfg := server.Config{
		Pods:   pods{podOf("web", "u1", "app", "shell", "init-db", "debug-1"), podOf("job", "u2", "work")},
		Access: server.AdminAccess{Token: token},
	}
	if change != nil {
		change(&cfg)
	}
	h, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// get asks with the admin's token.
func get(h http.Handler, path string) *httptest.ResponseRecorder { return ask(h, "GET", path, token) }

func ask(h http.Handler, method, path, token string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// upgrade asks for a session.
func upgrade(h http.Handler, method, path, token, protocol string) *httptest.ResponseRecorder {
	return ask(h, method, path, token, "Connection", "keep-alive, Upgrade", "Upgrade", protocol)
}
