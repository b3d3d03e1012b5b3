package podsizes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/checkpoint"
)

func asks(cpu string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
}

func cpu(r v1.ResourceRequirements) int64 {
	q := r.Requests[v1.ResourceCPU]
	return q.Value()
}

func podOf(init, app string) *v1.Pod {
	p := &v1.Pod{}
	p.Spec.InitContainers = []v1.Container{{Name: "init", Resources: asks(init)}}
	p.Spec.Containers = []v1.Container{{Name: "app", Resources: asks(app)}, {Name: "bare"}}
	return p
}

func TestOver(t *testing.T) {
	pod := podOf("1", "2")
	if Of(podOf("1000m", "2")).Over(pod) != pod {
		t.Error("another object although nothing differs")
	}
	got := Of(podOf("1", "3")).Over(pod)
	if diff := cmp.Diff(podOf("1", "3"), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(podOf("1", "2"), pod); diff != "" {
		t.Errorf("the spec was changed (-want +got)\n%s", diff)
	}
	level := podOf("1", "2")
	level.Spec.Resources = new(asks("4"))
	if got := Of(level).Over(pod); got == pod || cpu(*got.Spec.Resources) != 4 {
		t.Error("the pod as a whole")
	}
	if got := Of(pod).Over(level); got.Spec.Resources != nil {
		t.Error("the pod as a whole had nothing")
	}
	if (Pod{}).Over(pod) != pod {
		t.Error("what is not known stays as it is")
	}
}

func TestStoreOutlivesItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allocated_pods_state")
	fail := func(err error) { t.Helper(); t.Error(err) }
	s := NewStore(path, checkpoint.Write, fail)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			uid := types.UID(fmt.Sprint("u-", i))
			s.Set(uid, Of(podOf("1", fmt.Sprint(i+1))))
			if err := s.Save(); err != nil {
				t.Error(err)
			}
			if p, ok := NewStore(path, checkpoint.Write, fail).Get(uid); !ok || !p.Equal(Of(podOf("1", fmt.Sprint(i+1)))) {
				t.Errorf("%s is not on the disk: %v", uid, p)
			}
		})
	}
	wg.Wait()
	s.Keep(func(uid types.UID) bool { return uid == "u-7" })
	s.Set("u-7", Of(podOf("1", "9")))
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	s = NewStore(path, checkpoint.Write, fail)
	if p, ok := s.Get("u-7"); !ok || cpu(p.Containers["app"]) != 9 {
		t.Errorf("%v", p)
	}
	if _, ok := s.Get("u-8"); ok {
		t.Error("what was forgotten is back")
	}
	before, _ := os.Stat(path)
	s.Set("u-7", Of(podOf("1000m", "9")))
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("written although nothing has changed")
	}
}

func TestStoreSaysThatItKnowsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var told error
	s := NewStore(path, checkpoint.WriteUntilReboot, func(err error) { told = err })
	if _, ok := s.Get("u"); ok || !errors.Is(told, checkpoint.ErrDamaged) {
		t.Error(told)
	}
	s.Set("u", Of(podOf("1", "1")))
	if err := s.Save(); err != nil {
		t.Error(err)
	}
	b, _ := os.ReadFile(path)
	if !strings.Contains(string(b), "ContainerResources") {
		t.Errorf("%s", b)
	}
	none := NewStore("", nil, nil)
	none.Set("u", Pod{})
	if err := none.Save(); err != nil {
		t.Error(err)
	}
}
