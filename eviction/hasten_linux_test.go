package eviction

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// tree is a cgroup tree of version 2 in files, with one pod that eats up memory and does not end.
type tree struct {
	t      *testing.T
	root   string
	killed chan types.UID
}

// uses writes down how many MiB all pods use.
func (f *tree) uses(mib int64) {
	name := filepath.Join(f.root, "kubepods/memory.current")
	if err := errors.Join(os.WriteFile(name+"~", []byte(strconv.FormatInt(mib<<20, 10)), 0o644), os.Rename(name+"~", name)); err != nil {
		f.t.Error(err)
	}
}

func (*tree) Observe(context.Context) (Observation, error) {
	return Observation{
		Levels: map[Signal]Level{AllocatableMemoryAvailable: {Available: 150 << 20, Capacity: 1000 << 20, Used: 900 << 20, At: time.Now()}},
		Usage:  map[types.UID]Usage{"eater": {Memory: 800 << 20}},
	}, nil
}

func (*tree) Active() []*v1.Pod {
	return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "eater", UID: "eater"}}}
}

// Kill has the pod use half of what was left, and more, and ends it only once it is killed.
func (f *tree) Kill(ctx context.Context, uid types.UID, _ runtime.Termination) error {
	f.uses(950) // not yet: 900 used and 150 available, of which the half of 200 is to stay
	time.Sleep(20 * time.Millisecond)
	select {
	case <-f.killed:
		f.t.Error("killed too early")
	default:
	}
	f.uses(951)
	select {
	case got := <-f.killed:
		if got != uid {
			f.t.Errorf("killed is %s", got)
		}
		return nil
	case <-ctx.Done():
		f.t.Error("nobody kills it")
		return context.Cause(ctx)
	}
}

func (*tree) Settled(context.Context, types.UID) error { return nil }

func TestWithVersionTwoAPodThatEatsUpMemoryIsKilled(t *testing.T) {
	f := &tree{t: t, root: t.TempDir(), killed: make(chan types.UID, 1)}
	if err := errors.Join(os.Mkdir(filepath.Join(f.root, "kubepods"), 0o755), os.WriteFile(filepath.Join(f.root, "cgroup.controllers"), []byte("memory\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	f.uses(900)
	notifier, err := newCgroups(f.root, f.root, "kubepods")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{
		Source: f, Pods: f, Notifier: notifier, Thresholds: []Threshold{{Signal: AllocatableMemoryAvailable, Value: Value{Quantity: new(resource.MustParse("200Mi"))}}},
		Kill: func(uid types.UID) error { f.killed <- uid; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended, err := m.Check(t.Context())
	if err != nil || len(ended) != 1 {
		t.Errorf("ended %v, %v", ended, err)
	}
}
