package offline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var errKilled = errors.New("killed")

// history is a life of an agent that is killed before one of its writes, and what is known of it.
type history struct {
	t      *testing.T
	r      *rand.Rand
	s      *server
	l      life
	killAt int // number of the write or removal that never happens, nor any after it

	mu   sync.Mutex // guards done and dead
	done int
	dead bool

	told     []*v1.Pod                     // what the agent was told last
	version  int                           // of what the server has, counted up
	pods     map[string]*v1.Pod            // as the server has them
	images   map[types.UID]map[string]bool // a pod ever had
	over     map[types.UID]bool            // the agent has passed on that they are over
	safe     map[types.UID]bool            // surely written, and wanted ever since
	settings int                           // version surely written
}

// fault is called before each write and removal.
func (h *history) fault(what, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done++
	if h.dead || h.done == h.killAt {
		if what == "write" && !h.dead { // in the middle of it
			left := filepath.Join(h.l.dir, "."+name+"123456")
			if err := os.WriteFile(left, []byte(magic+"pla"), 0o600); err != nil {
				h.t.Error(err)
			}
		}
		h.dead = true
		return errKilled
	}
	return nil
}

// killed says that the agent has written its last.
func (h *history) killed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

// passed is called with each set that the agent passes on: from then on it knows which pods are over.
func (h *history) passed() {
	if h.killed() {
		return // it never came so far
	}
	for uid := range h.images {
		h.over[uid] = true
	}
	for _, p := range h.told {
		h.over[p.UID] = p.DeletionTimestamp != nil
	}
}

// change changes something on the server.
func (h *history) change() {
	h.version++
	name := string(rune('a' + h.r.IntN(4)))
	p := h.pods[name]
	switch n := h.r.IntN(10); {
	case p == nil || n == 0: // another one of that name
		p = podOf(name, fmt.Sprint("uid-", h.version), fmt.Sprint(h.version))
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}}
		h.pods[name] = p
	case n < 3:
		delete(h.pods, name)
	case n < 5:
		p = p.DeepCopy()
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		h.pods[name] = p
	case n < 7:
		h.s.keep("configmap/shop/settings", &v1.ConfigMap{Data: map[string]string{"version": strconv.Itoa(h.version)}})
	case p.DeletionTimestamp == nil:
		p = p.DeepCopy()
		p.Spec.Containers[0].Image = fmt.Sprint(h.version)
		h.pods[name] = p
	}
}

// deliver has the agent told what the server has.
func (h *history) deliver() {
	var set []*v1.Pod
	wanted := map[types.UID]bool{}
	for _, p := range h.pods {
		set = append(set, p)
		if h.images[p.UID] == nil {
			h.images[p.UID] = map[string]bool{}
		}
		h.images[p.UID][p.Spec.Containers[0].Image] = true
		wanted[p.UID] = p.DeletionTimestamp == nil
	}
	for uid := range h.safe {
		if !wanted[uid] {
			delete(h.safe, uid)
		}
	}
	if len(set) == 0 {
		h.settings = 0 // nobody uses them
	}
	h.told = set
	h.s.delivers(true, set...)
}

// quiet waits until all is written.
func (h *history) quiet(a *agent) {
	synctest.Wait()
	if h.killed() {
		return
	}
	for _, p := range h.told {
		if p.DeletionTimestamp == nil {
			h.safe[p.UID] = true
		}
	}
	cm, err := a.ConfigMap(context.Background(), "shop", "settings")
	if err != nil {
		h.t.Error(err)
		return
	}
	synctest.Wait()
	if !h.killed() && len(h.told) > 0 {
		h.settings = versionOf(cm)
	}
}

func versionOf(cm *v1.ConfigMap) int {
	n, _ := strconv.Atoi(cm.Data["version"])
	return n
}

func (h *history) live(a *agent) {
	for range 25 {
		if h.killed() {
			break
		}
		h.change()
		if h.r.IntN(3) > 0 {
			h.deliver()
		}
		if h.r.IntN(3) == 0 {
			_, _ = a.ConfigMap(context.Background(), "shop", "settings")
		}
		if h.r.IntN(2) == 0 {
			h.quiet(a)
		}
	}
	synctest.Wait()
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	a.stop()
}

// check starts another agent, without a server.
func (h *history) check() {
	t := h.t
	h.s.goes(errDown)
	a := life{dir: h.l.dir}.start(t, h.s)
	have := map[types.UID]bool{}
	for _, p := range a.pods {
		have[p.UID] = true
		if h.over[p.UID] {
			t.Errorf("pod %s starts again, and was known to be over", p.UID)
		}
		if !h.images[p.UID][p.Spec.Containers[0].Image] || p.DeletionTimestamp != nil {
			t.Errorf("pod %s never was %+v", p.UID, p)
		}
	}
	for uid := range h.safe {
		if !have[uid] {
			t.Errorf("pod %s is lost", uid)
		}
	}
	if cm, err := a.ConfigMap(t.Context(), "shop", "settings"); err == nil && (versionOf(cm) < h.settings || versionOf(cm) > h.version) || err != nil && h.settings > 0 {
		t.Errorf("settings %v, error %v; want at least version %d", cm, err, h.settings)
	}
	if l := a.Lines("ERROR"); len(l) > 0 {
		t.Errorf("logged %v", l)
	}
	a.stop()
	for _, name := range files(t, h.l.dir) {
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, damagedSuffix) {
			t.Errorf("left behind: %s", name)
		}
	}
}

// An agent killed before any of its writes starts again with pods that it had, with all that were surely written, and
// with none that it knew to be over.
func TestAnAgentKilledBetweenTwoWrites(t *testing.T) {
	for seed := range uint64(8) {
		for killAt := 1; ; killAt += 1 + int(seed) {
			h := &history{
				r: rand.New(rand.NewPCG(seed, 7)), killAt: killAt, //nolint:gosec // a history to be repeated
				pods: map[string]*v1.Pod{}, images: map[types.UID]map[string]bool{}, over: map[types.UID]bool{}, safe: map[types.UID]bool{},
			}
			h.l = life{dir: t.TempDir(), fault: h.fault, passed: h.passed}
			synctest.Test(t, func(t *testing.T) {
				h.t, h.s = t, newServer()
				h.s.keep("configmap/shop/settings", &v1.ConfigMap{Data: map[string]string{"version": "0"}})
				h.live(h.l.start(t, h.s))
				h.check()
			})
			if t.Failed() {
				t.Fatalf("seed %d, killed before write %d", seed, killAt)
			}
			if h.done < killAt {
				break // that many writes there are not
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	seal, err := sealer(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encode("pod-1", []byte("{}"), nil))
	f.Add(encode("pod-1", []byte("{}"), seal))
	f.Add([]byte(magic + "plain \n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := decode("pod-1", b, seal)
		if err != nil {
			if !errors.Is(err, errDamaged) && !errors.Is(err, errOtherKey) {
				t.Error(err)
			}
			return
		}
		if again, err := decode("pod-1", encode("pod-1", body, seal), seal); err != nil || string(again) != string(body) {
			t.Errorf("%q comes back as %q, %v", body, again, err)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	s, l := newServer(), life{dir: b.TempDir()}
	var pods []*v1.Pod
	for i := range 110 {
		pods = append(pods, podOf(fmt.Sprint("p", i), fmt.Sprint("u", i), "nginx"))
	}
	a := l.start(b, s)
	s.delivers(true, pods...)
	a.stop()
	b.ReportAllocs()
	for b.Loop() {
		if n := len(newStore(l.dir, nil, a.log, a.metrics).load()); n != 110 {
			b.Fatalf("%d pods", n)
		}
	}
}

func BenchmarkUnchangedSet(b *testing.B) {
	s, l := newServer(), life{dir: b.TempDir()}
	var pods []*v1.Pod
	for i := range 110 {
		pods = append(pods, podOf(fmt.Sprint("p", i), fmt.Sprint("u", i), "nginx"))
	}
	l.start(b, s)
	s.delivers(true, pods...)
	b.ReportAllocs()
	for b.Loop() {
		s.delivers(true, pods...)
	}
}
