package staticpod

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/witness"
)

// node is a Dir that runs in a test, and what it did.
type node struct {
	witness.Notes

	t    *testing.T
	path string

	mu       sync.Mutex // guards the rest
	pods     []*v1.Pod
	complete bool
	sets     int
	seen     map[string]int // how many different pods there were of a name
	known    map[*v1.Pod]bool
}

// startDir runs a Dir over path until the test ends.
func startDir(t *testing.T, path string, cfg Config) *node {
	t.Helper()
	return startSettling(t, path, cfg, settle)
}

// startPatient is startDir for tests of what passes through bad states: they are a moment's, however long a busy machine
// makes that.
func startPatient(t *testing.T, path string, cfg Config) *node {
	t.Helper()
	return startSettling(t, path, cfg, time.Hour)
}

func startSettling(t *testing.T, path string, cfg Config, settle time.Duration) *node {
	t.Helper()
	n := &node{t: t, path: path, seen: map[string]int{}, known: map[*v1.Pod]bool{}}
	if cfg.Node == "" {
		cfg.Node = "n1"
	}
	cfg.Path = path
	cfg.Observe = n.Observe()
	d, err := NewDir(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.table.settle = settle
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx, n.set) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return n
}

func (n *node) set(pods []*v1.Pod, complete bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods, n.complete = pods, complete
	n.sets++
	for _, p := range pods {
		if !n.known[p] {
			n.known[p] = true
			n.seen[p.Name]++
		}
	}
}

// state is what is delivered: the names and first images, and whether that is all.
func (n *node) state() (names []string, complete bool, sets int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		name := p.Name + "=" + p.Spec.Containers[0].Image
		if p.Namespace != v1.NamespaceDefault {
			name = p.Namespace + "/" + name
		}
		names = append(names, name)
	}
	return names, n.complete, n.sets
}

func (n *node) pod(name string) *v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// until waits for a condition.
func (n *node) until(what string, ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			names, complete, sets := n.state()
			n.t.Fatalf("waited in vain for %s; have %v, complete %v, after %d sets; log:\n%s", what, names, complete, sets, strings.Join(n.Lines(""), "\n"))
		}
	}
}

// wants waits until exactly these are delivered, and completely.
func (n *node) wants(want ...string) {
	n.t.Helper()
	n.until(strings.Join(want, ", "), func() bool {
		names, complete, _ := n.state()
		return complete && slices.Equal(names, want)
	})
}

// tells waits until a line of the log has all parts.
func (n *node) tells(parts ...string) {
	n.t.Helper()
	n.until("a line with "+strings.Join(parts, ", "), func() bool {
		return slices.ContainsFunc(n.Lines(""), func(l string) bool {
			return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(l, p) })
		})
	})
}

// looked waits until something written last was surely looked at: a pod of its own comes and goes.
func (n *node) looked() {
	n.t.Helper()
	file := filepath.Join(n.path, "zz-marker.yaml")
	replace(n.t, file, podText("zz-marker", "busybox")) // it is never seen half written
	n.until("the marker", func() bool { return n.pod("zz-marker-n1") != nil })
	remove(n.t, file)
	n.until("the end of the marker", func() bool { return n.pod("zz-marker-n1") == nil })
}

func podText(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: '" + image + "'}]}\n"
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace writes beside a file and renames over it.
func replace(t testing.TB, path, text string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	write(t, tmp, text)
	rename(t, tmp, path)
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// lookOnce is what one look delivers.
func lookOnce(d *Dir) (pods []*v1.Pod, complete bool) {
	d.step(time.Now(), nil, func(p []*v1.Pod, c bool) { pods, complete = p, c })
	return pods, complete
}
