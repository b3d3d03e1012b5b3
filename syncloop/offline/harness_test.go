package offline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/witness"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var errDown = errors.New("connect: connection refused")

// server is an API server: a pod source and its objects.
type server struct {
	mu      sync.Mutex // guards the rest
	down    error      // nil: it answers
	hangs   bool
	objects map[string]any // by kind/namespace/name
	asked   int
	sets    chan delivery
	tokens  int
}

type delivery struct {
	pods     []*v1.Pod
	complete bool
	taken    chan struct{}
}

func newServer() *server { return &server{objects: map[string]any{}, sets: make(chan delivery)} }

func (s *server) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-s.sets:
			set(d.pods, d.complete)
			close(d.taken)
		}
	}
}

// delivers a set and returns once it was taken.
func (s *server) delivers(complete bool, pods ...*v1.Pod) {
	d := delivery{pods, complete, make(chan struct{})}
	s.sets <- d
	<-d.taken
}

func (s *server) keep(key string, object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = object
}

func (s *server) goes(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

func find[T any](ctx context.Context, s *server, key string) (v T, err error) {
	s.mu.Lock()
	down, hangs, object := s.down, s.hangs, s.objects[key]
	s.asked++
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return v, ctx.Err()
	}
	if down != nil {
		return v, fmt.Errorf("get %s: %w", key, down)
	}
	v, ok := object.(T)
	if !ok {
		return v, fmt.Errorf("%s: %w", key, runtime.ErrNotFound)
	}
	return v, nil
}

func (s *server) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return find[*v1.ConfigMap](ctx, s, "configmap/"+namespace+"/"+name)
}

func (s *server) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return find[*v1.Secret](ctx, s, "secret/"+namespace+"/"+name)
}

func (s *server) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	return find[[]*v1.Service](ctx, s, "services/"+namespace)
}

func (s *server) Class(name string) (string, error) {
	return find[string](context.Background(), s, "class/"+name)
}

func (s *server) Token(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (string, time.Time, error) {
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	if _, err := find[int](ctx, s, "token"); err != nil && !errors.Is(err, runtime.ErrNotFound) {
		return "", end, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens++
	return fmt.Sprintf("token %d of %s for %s", s.tokens, pod.UID, audience), end, nil
}

func (s *server) Follow(kind, namespace, name string, changed func()) func() {
	changed()
	return func() { s.keep("stopped", kind+"/"+namespace+"/"+name) }
}

// agent is one life of a Cache.
type agent struct {
	*Cache
	witness.Notes
	dir string

	mu       sync.Mutex // guards the rest
	pods     []*v1.Pod
	complete bool
	sets     int

	stop func()
}

type life struct {
	dir   string
	key   []byte
	fault func(what, name string) error

	passed func() // called with each set that is passed on; nil: nobody cares
}

// keepsWeb is a life before, in which all that web needs was kept.
func (l life) keepsWeb(t testing.TB, s *server) {
	t.Helper()
	a := l.start(t, s)
	s.delivers(true, web("u1"))
	a.needs(t.Context(), "u1")
	a.stop()
}

// start runs a Cache until stop, or the end of the test.
func (l life) start(t testing.TB, s *server) *agent {
	t.Helper()
	a := &agent{dir: l.dir}
	c, err := New(Config{Dir: l.dir, Source: s, Objects: s, Key: l.key, Observe: a.Observe()})
	if err != nil {
		t.Fatal(err)
	}
	a.Cache = c
	c.store.fault = l.fault
	ctx, cancel := context.WithCancel(context.Background())
	done, began := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx, func(pods []*v1.Pod, complete bool) {
			a.mu.Lock()
			a.pods, a.complete = pods, complete
			a.sets++
			first := a.sets == 1
			a.mu.Unlock()
			if first {
				close(began)
			} else if l.passed != nil {
				l.passed()
			}
		}); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	<-began
	a.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(a.stop)
	return a
}

// names are the pods delivered last.
func (a *agent) names() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pods {
		names = append(names, p.Name+":"+p.Spec.Containers[0].Image)
	}
	slices.Sort(names)
	return names
}

func (a *agent) wants(t *testing.T, complete bool, names ...string) {
	t.Helper()
	if got := a.names(); !slices.Equal(got, names) || a.complete != complete {
		t.Errorf("delivered %v, complete %v; want %v, %v", got, a.complete, names, complete)
	}
}

// files are the names in the directory, by their kind.
func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func podOf(name, uid, image string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(uid), ResourceVersion: "7",
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: image}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
}

// web is a pod that uses one of everything.
func web(uid string) *v1.Pod {
	p := podOf("web", uid, "nginx")
	class := "micro"
	p.Spec.RuntimeClassName = &class
	p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}}
	p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "tls"}}}}
	return p
}

// stocked is a server with all that web uses.
func stocked() *server {
	s := newServer()
	s.keep("configmap/shop/settings", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "red"}})
	s.keep("secret/shop/pull", &v1.Secret{Data: map[string][]byte{"auth": []byte("xyzzy")}})
	s.keep("secret/shop/tls", &v1.Secret{Data: map[string][]byte{"key": []byte("plugh")}})
	s.keep("services/shop", []*v1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.2"}}})
	s.keep("services/default", []*v1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}})
	s.keep("class/micro", "kata")
	return s
}

// needs asks for all that web uses and tells what came.
func (a *agent) needs(ctx context.Context, uid string) (out []string) {
	note := func(what string, v any, err error) {
		if err != nil {
			v = err
		}
		out = append(out, fmt.Sprintf("%s %v", what, v))
	}
	cm, err := a.ConfigMap(ctx, "shop", "settings")
	if cm == nil {
		cm = &v1.ConfigMap{}
	}
	note("settings", cm.Data["colour"], err)
	for _, name := range []string{"pull", "tls"} {
		sec, err := a.Secret(ctx, "shop", name)
		if sec == nil {
			sec = &v1.Secret{}
		}
		note(name, string(sec.Data["auth"])+string(sec.Data["key"]), err)
	}
	for _, ns := range []string{"shop", "default"} {
		services, err := a.Services(ctx, ns)
		names := ""
		for _, s := range services {
			names += s.Name + s.Spec.ClusterIP
		}
		note(ns, names, err)
	}
	handler, err := a.Class("micro") //nolint:contextcheck // it has none
	note("class", handler, err)
	token, _, err := a.Token(ctx, web(uid), "vault", 3600)
	note("token", token, err)
	return out
}

var allOfWeb = []string{"settings red", "pull xyzzy", "tls plugh", "shop db10.0.0.2", "default kubernetes", "class kata"}

var key = []byte("0123456789abcdef0123456789abcdef")
