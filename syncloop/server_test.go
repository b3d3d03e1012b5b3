package syncloop_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// server is as much of an API server as pods of a node have to do with: it keeps objects and their statuses, shows them to
// the node, and gives up an object when the node says that it may go.
type server struct {
	n    *node
	bell chan struct{}

	mu      sync.Mutex // guards the rest
	objects map[string]*v1.Pod
	away    bool
	writes  int
	log     func(p *v1.Pod) // called with each object as written by this node; nil: nobody cares
}

func newServer(n *node) *server {
	s := &server{n: n, bell: make(chan struct{}, 1), objects: map[string]*v1.Pod{}}
	s.ring()
	return s
}

// ofServer says that a pod is one of an API server.
func ofServer(p *v1.Pod) bool { return p != nil && p.Annotations[podspec.SourceAnnotation] == "api" }

func (s *server) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// Run makes a server a source. A server that cannot be reached shows nothing.
func (s *server) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	s.ring()
	for {
		select {
		case <-s.bell:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		pods, away := slices.Collect(maps.Values(s.objects)), s.away
		s.mu.Unlock()
		if away {
			continue
		}
		slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
		set(pods, true)
	}
}

// put makes an object, or changes one but for its status and its deletion. Where it comes from is not written there.
func (s *server) put(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.DeepCopy()
	delete(p.Annotations, podspec.SourceAnnotation)
	p.CreationTimestamp = metav1.NewTime(time.Now().Add(s.n.ahead))
	if old := s.objects[p.Name]; old != nil && old.UID == p.UID {
		p.CreationTimestamp, p.Generation, p.Status = old.CreationTimestamp, old.Generation+1, old.Status
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = old.DeletionTimestamp, old.DeletionGracePeriodSeconds
	} else {
		p.Generation, p.Status.Phase = 1, v1.PodPending
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}
	}
	s.objects[p.Name] = p
	s.ring()
}

func (s *server) change(name string, f func(*v1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.objects[name].DeepCopy(); p != nil {
		f(p)
		s.objects[name] = p
		s.ring()
	}
}

func (s *server) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	s.ring()
}

func (s *server) reach(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = !yes
	s.ring()
}

// find is the object of that pod, nil when it is gone or another one now.
func (s *server) find(p *v1.Pod) *v1.Pod {
	if o := s.objects[p.Name]; o != nil && o.UID == p.UID {
		return o
	}
	return nil
}

// write takes a status as the sink for a real server does.
func (s *server) write(p *v1.Pod, st v1.PodStatus) (v1.PodStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.find(p)
	switch {
	case s.away:
		return st, errors.New("the server is away")
	case o == nil:
		return st, runtime.ErrNotFound
	}
	st = status.Merge(o, st)
	if !equality.Semantic.DeepEqual(o.Status, st) {
		o = o.DeepCopy()
		o.Status = st
		s.objects[p.Name] = o
		s.writes++
		if s.log != nil {
			s.log(o)
		}
		s.ring()
	}
	return st, nil
}

// finished gives up the object of a pod that is asked to go.
func (s *server) finished(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.find(p); o != nil && p.DeletionTimestamp != nil {
		delete(s.objects, p.Name)
		s.n.say(p.Name, "its object is gone")
		s.ring()
	}
}

// show writes down an object.
func (s *server) show(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.objects[name]
	if p == nil {
		return "no " + name
	}
	out := name + " " + string(p.Status.Phase)
	if p.Status.Reason != "" {
		out += " " + p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		out += " " + string(c.Type) + "=" + string(c.Status)
	}
	return out
}

// get is an object as it is now, nil when it is gone.
func (s *server) get(name string) *v1.Pod {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name]
}

// written is how often this node wrote, and watch has each object that it writes from now on shown.
func (s *server) written() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *server) watch(log func(p *v1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = log
}

// all are the objects there are.
func (s *server) all() []*v1.Pod {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objects))
}
