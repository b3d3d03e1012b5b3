package nodestatus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a Sink that keeps one node as an API server does: what a patch does not name stays.
type server struct {
	mu     sync.Mutex
	node   *v1.Node
	shown  *v1.Node // what a watch shows; nil: the newest
	made   int
	serial int
	calls  []string // with the seconds since start
	start  time.Time
	fail   func(op string) error // called without the lock
}

func newServer() *server { return &server{start: time.Now()} }

func (s *server) called(ctx context.Context, op string) error {
	s.mu.Lock()
	s.calls = append(s.calls, op)
	fail := s.fail
	s.mu.Unlock()
	if fail == nil {
		return nil
	}
	err := fail(op)
	if err == errHang { //nolint:errorlint // a mark
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

var errHang = fmt.Errorf("hangs")

func (s *server) Register(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	if err := s.called(ctx, "register"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		s.made++
		s.node = node.DeepCopy()
		s.node.UID = types.UID("uid-" + strconv.Itoa(s.made))
		s.bump()
	}
	return s.node.DeepCopy(), nil
}

func (s *server) Get(ctx context.Context) (*v1.Node, error) {
	if err := s.called(ctx, "get"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return nil, fmt.Errorf("node: %w", runtime.ErrNotFound)
	}
	return s.node.DeepCopy(), nil
}

func (s *server) UpdateNode(ctx context.Context, from, to *v1.Node) error {
	if err := s.called(ctx, "update"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return fmt.Errorf("node: %w", runtime.ErrNotFound)
	}
	patchMap(&s.node.Labels, from.Labels, to.Labels)
	patchMap(&s.node.Annotations, from.Annotations, to.Annotations)
	for _, c := range to.Status.Conditions {
		if was := condition(from, c.Type); was == nil || *was != c {
			if is := condition(s.node, c.Type); is != nil {
				*is = c
			} else {
				s.node.Status.Conditions = append(s.node.Status.Conditions, c)
			}
		}
	}
	a, b := from.DeepCopy(), to.DeepCopy()
	a.Status.Conditions, b.Status.Conditions = nil, nil
	if !equality.Semantic.DeepEqual(a.Status, b.Status) {
		b.Status.Conditions = s.node.Status.Conditions
		s.node.Status = b.Status
	}
	s.bump()
	return nil
}

func patchMap(on *map[string]string, from, to map[string]string) {
	for k, v := range to {
		if from[k] != v {
			setKey(on, k, v)
		}
	}
	for k := range from {
		if _, ok := to[k]; !ok {
			delete(*on, k)
		}
	}
}

func (s *server) bump() {
	s.serial++
	s.node.ResourceVersion = strconv.Itoa(s.serial)
}

// change is what another client writes.
func (s *server) change(f func(*v1.Node)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.node)
	s.bump()
}

// drop deletes the node.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = nil
}

// failWith makes calls fail from now on.
func (s *server) failWith(f func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// freeze makes the watch show from now on what the node is now.
func (s *server) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = s.node.DeepCopy()
}

// shownIs makes the watch show a node.
func (s *server) shownIs(n *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = n
}

// seen is the node as a watch shows it.
func (s *server) seen() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown != nil {
		return s.shown
	}
	return s.node.DeepCopy()
}

// now is the node, empty when there is none.
func (s *server) now() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return &v1.Node{}
	}
	return s.node.DeepCopy()
}

// took answers how often each call was made since the last took.
func (s *server) took() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, c := range s.calls {
		out[c]++
	}
	s.calls = nil
	return out
}

// events notes reasons.
type events struct {
	mu  sync.Mutex
	all []observe.Event
}

func (e *events) Event(ev observe.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// took answers the reasons since the last took.
func (e *events) took() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, ev := range e.all {
		out = append(out, ev.Reason)
	}
	e.all = nil
	return out
}

// host is what setters find, and may change.
type host struct {
	mu      sync.Mutex
	machine Machine
	health  error
	under   []v1.NodeConditionType
	asked   int
}

func (h *host) set(f func(*host)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

func (h *host) setters(t *testing.T) []Setter {
	t.Helper()
	machine := func() (Machine, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.machine, nil
	}
	capacity, err := Capacity(Sizes{Machine: machine})
	if err != nil {
		t.Fatal(err)
	}
	return []Setter{
		MachineInfo(machine), VersionInfo("v1.37.2"), capacity, DaemonEndpoints(10250),
		Pressure(func() []v1.NodeConditionType {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.Clone(h.under)
		}),
		Ready(func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.asked++
			return h.health
		}),
	}
}

// world is a Reporter with all around it.
type world struct {
	*host
	*server
	events events
	kick   chan struct{}
	r      *Reporter
}

// node makes a world in which nothing runs yet. The reporter follows the server by a watch.
func node(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	w := &world{server: newServer(), kick: make(chan struct{}, 1)}
	w.host = &host{machine: Machine{Cores: 4, Memory: 8 << 30, BootID: "boot-1"}}
	initial, err := Initial(Registration{Name: "n1", AttachByOthers: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Name: "n1", Initial: initial, Setters: w.setters(t), Sink: w.server, Seen: w.seen, Kick: w.kick,
		Observe: observe.To{Events: &w.events},
	}
	for _, c := range change {
		c(&cfg)
	}
	if w.r, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs the reporter until the end of the test, in a bubble.
func (w *world) run(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func (w *world) ready() v1.ConditionStatus {
	if c := condition(w.now(), v1.NodeReady); c != nil {
		return c.Status
	}
	return ""
}

// want compares the calls since the last time.
func (w *world) want(t *testing.T, calls map[string]int) {
	t.Helper()
	if got := w.took(); !maps.Equal(got, calls) {
		t.Errorf("calls %v, want %v", got, calls)
	}
}

func (w *world) told(t *testing.T, reasons ...string) {
	t.Helper()
	if got := w.events.took(); !slices.Equal(got, reasons) {
		t.Errorf("events %q, want %q", got, reasons)
	}
}
