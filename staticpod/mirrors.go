package staticpod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
)

const (
	defaultRelook = 10 * time.Second
	nodeWait      = 250 * time.Millisecond // between two looks while this node is not registered
	callTimeout   = time.Minute            // of one call of a MirrorClient
	mirrorCalls   = 4                      // calls at once
)

// MirrorClient is what keeping mirror pods needs of an API server. Calls come for different pods side by side and return
// soon after ctx ends. Pods are shared and read-only.
type MirrorClient interface {
	// CreateMirror makes a pod as it is given. That it is there already, with the same mirror annotation, is no error.
	CreateMirror(ctx context.Context, pod *v1.Pod) error

	// DeleteMirror deletes, at once and without a grace, the pod that has this name and this UID. That it is gone, or that
	// another pod has the name by now, is no error; an API error NotFound or Conflict counts as that.
	DeleteMirror(ctx context.Context, namespace, name string, uid types.UID) error
}

// MirrorConfig describes Mirrors. Client, Node and Pods are required.
type MirrorConfig struct {
	Client MirrorClient
	Node   func() *v1.Node  // this node as the API server has it; nil: it is not registered
	Pods   func() []*v1.Pod // pods of this node, also those that are still being stopped; such as are not static do not count
	Relook time.Duration    // time between two looks at Pods without a Wake; 0 means 10 s

	// Removable says that nobody wants that pod and that all sources have told what they want. Before, the mirror of a pod
	// that nobody knows is left alone. Nil: there is nothing to wait for.
	Removable func(uid types.UID) bool

	// Changed is told that a static pod has another mirror pod than before, which needs its status. It must not block.
	Changed func(static types.UID)

	Observe observe.To // logger, metrics; zero is silent
}

// Mirrors keeps a mirror pod on the API server for each static pod, so that a cluster sees what its nodes run on their own
// account. Nothing on the node depends on it. All methods are safe for concurrent use.
type Mirrors struct {
	cfg     MirrorConfig
	log     *slog.Logger
	metrics mirrorMetrics
	bell    chan struct{}

	mu      sync.Mutex // guards the rest
	heard   bool       // Show was called
	shown   map[string]*v1.Pod
	statics map[string]couple
	records map[string]*record      // all three by full name
	told    map[types.UID]types.UID // mirror that Changed was told of, by static pod
}

// couple are the static pods of one name: the one that is wanted, and one that is still being stopped.
type couple struct{ wanted, ending *v1.Pod }

// NewMirrors checks the configuration and returns Mirrors at rest.
func NewMirrors(cfg MirrorConfig) (*Mirrors, error) {
	if cfg.Client == nil || cfg.Node == nil || cfg.Pods == nil {
		return nil, errors.New("staticpod: Client, Node and Pods of mirrors are required")
	}
	cfg.Relook = cmp.Or(cfg.Relook, defaultRelook)
	if cfg.Removable == nil {
		cfg.Removable = func(types.UID) bool { return true }
	}
	if cfg.Changed == nil {
		cfg.Changed = func(types.UID) {}
	}
	metrics, err := newMirrorMetrics(cfg.Observe)
	if err != nil {
		return nil, fmt.Errorf("staticpod: make metrics: %w", err)
	}
	return &Mirrors{
		cfg: cfg, log: cfg.Observe.Logger(), metrics: metrics, bell: make(chan struct{}, 1),
		records: map[string]*record{}, told: map[types.UID]types.UID{},
	}, nil
}

// Show tells which mirror pods of this node the API server has, all of them; pods that are none are left out. Nothing is
// made or deleted before the first call. It does not block.
func (m *Mirrors) Show(pods []*v1.Pod) {
	shown := map[string]*v1.Pod{}
	for _, p := range pods {
		if _, ok := p.Annotations[podspec.MirrorAnnotation]; ok {
			shown[podspec.FullName(p)] = p
		}
	}
	m.mu.Lock()
	idle := m.heard && len(m.shown)+len(shown) == 0 // other pods came or went
	m.heard, m.shown = true, shown
	news := m.changes()
	m.mu.Unlock()
	m.tell(news)
	if !idle {
		m.Wake()
	}
}

// Wake asks for a look at Pods, such as after a static pod came. It does not block.
func (m *Mirrors) Wake() {
	select {
	case m.bell <- struct{}{}:
	default:
	}
}

// MirrorOf is the mirror pod of a static pod as the API server showed it last, nil when there is none that mirrors this
// very version. Asking for a pod without one also wakes, so that whoever has a status to write need not do so.
func (m *Mirrors) MirrorOf(static types.UID) *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, c := range m.statics {
		for _, p := range []*v1.Pod{c.wanted, c.ending} {
			if p != nil && p.UID == static && mirrors(m.shown[name], p) {
				return m.shown[name]
			}
		}
	}
	m.Wake()
	return nil
}

// StaticOf is the static pod that a mirror pod stands for; ok is false for one that is none, or mirrors a version that is
// no more.
func (m *Mirrors) StaticOf(mirror types.UID) (static types.UID, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, c := range m.statics {
		if s := m.shown[name]; s == nil || s.UID != mirror {
			continue
		}
		for _, p := range []*v1.Pod{c.wanted, c.ending} {
			if mirrors(m.shown[name], p) {
				return p.UID, true
			}
		}
	}
	return "", false
}

// Run keeps the mirror pods until ctx ends; then it returns nil.
func (m *Mirrors) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		next := time.NewTimer(m.step(ctx))
		select {
		case <-ctx.Done():
		case <-m.bell:
		case <-next.C:
		}
		next.Stop()
	}
	return nil
}

// step looks at everything once and does what is due. It says when to look again at the latest.
func (m *Mirrors) step(ctx context.Context) time.Duration {
	statics := couples(m.cfg.Pods())
	node := m.cfg.Node()
	now := time.Now()

	m.mu.Lock()
	m.statics = statics
	m.metrics.mirrors.Record(float64(len(statics)))
	news := m.changes()
	do, next := m.due(node, now)
	m.mu.Unlock()
	m.tell(news)

	var calls errgroup.Group
	calls.SetLimit(mirrorCalls)
	for _, a := range do {
		calls.Go(func() error { m.act(ctx, a); return nil })
	}
	_ = calls.Wait()
	if len(do) > 0 {
		return 0 // when the next act is due is known by now
	}
	return min(next, m.cfg.Relook)
}

// due are the acts whose time has come. The mutex is held.
func (m *Mirrors) due(node *v1.Node, now time.Time) (do []act, next time.Duration) {
	next = m.cfg.Relook
	if !m.heard {
		return nil, next
	}
	names := map[string]bool{}
	for name := range m.shown {
		names[name] = true
	}
	for name := range m.statics {
		names[name] = true
	}
	for name := range m.records {
		if !names[name] {
			delete(m.records, name)
		}
	}
	for name := range names {
		r := m.records[name]
		if r == nil {
			r = &record{}
			m.records[name] = r
		}
		s := m.shown[name]
		a, wait := r.next(m.statics[name], s, s != nil && m.cfg.Removable(s.UID), now)
		if a.create != nil && !registered(node) {
			a.create, wait = nil, nodeWait
		}
		if a.create != nil {
			a.create = mirror(a.create, node)
		}
		if a.create != nil || a.del != nil {
			a.record = r
			do = append(do, a)
		}
		if wait > 0 {
			next = min(next, wait)
		}
	}
	return do, next
}

// act makes the calls for one name, and notes how they went.
func (m *Mirrors) act(ctx context.Context, a act) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	deleted, err := m.call(call, a)
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	news := a.record.acted(a, deleted, err, time.Now())
	m.mu.Unlock()
	about := cmp.Or(a.create, a.del)
	switch {
	case news != nil:
		m.log.Warn("mirror pod cannot be kept; the static pod is not concerned, and it is tried again",
			"namespace", about.Namespace, "pod", about.Name, "err", news)
	case err != nil:
		m.log.Debug("mirror pod cannot be kept", "namespace", about.Namespace, "pod", about.Name, "err", err)
	default:
		m.log.Debug("mirror pod is made anew or deleted", "namespace", about.Namespace, "pod", about.Name)
	}
}

func (m *Mirrors) call(ctx context.Context, a act) (deleted bool, err error) {
	if a.del != nil {
		err := m.cfg.Client.DeleteMirror(ctx, a.del.Namespace, a.del.Name, a.del.UID)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return false, fmt.Errorf("delete mirror pod with uid %s: %w", a.del.UID, err)
		}
	}
	if a.create != nil {
		if err := m.cfg.Client.CreateMirror(ctx, a.create); err != nil {
			return a.del != nil, fmt.Errorf("create mirror pod: %w", err)
		}
	}
	return a.del != nil, nil
}

// changes are the static pods that have another mirror pod than when Changed was told of them. The mutex is held.
func (m *Mirrors) changes() (news []types.UID) {
	told := map[types.UID]types.UID{}
	for name, c := range m.statics {
		for _, p := range []*v1.Pod{c.wanted, c.ending} {
			if !mirrors(m.shown[name], p) {
				continue
			}
			told[p.UID] = m.shown[name].UID
			if m.told[p.UID] != told[p.UID] {
				news = append(news, p.UID)
			}
		}
	}
	m.told = told
	return news
}

func (m *Mirrors) tell(news []types.UID) {
	for _, uid := range news {
		m.cfg.Changed(uid)
	}
}
