package apifake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/kubeapi"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func connect(cfg *rest.Config) *kubeapi.Client {
	c, err := kubeapi.New(kubeapi.Config{REST: cfg, Node: "n1"})
	if err != nil {
		panic(err)
	}
	return c
}

func Example() {
	server := apifake.New()
	defer server.Close()
	client := connect(server.Config())
	defer client.CloseIdle()

	node, err := client.Register(context.Background(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	fmt.Println(node.UID, err)
	server.Answer(func(c apifake.Call) *apifake.Answer {
		if c.Verb == "get" {
			return &apifake.Answer{Err: apierrors.NewServiceUnavailable("not today")}
		}
		return nil
	})
	_, err = client.Get(context.Background())
	fmt.Println(err)
	fmt.Println(server.Calls())
	// Output:
	// uid-1 <nil>
	// read nodes n1: not today
	// [create nodes get nodes n1]
}

func TestABoundPodGoesInTwoSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apifake.New()
		defer s.Close()
		p := s.Put(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1.PodSpec{NodeName: "n1"}})
		s.Delete(p)
		is, ok := apifake.Get(s, p.(*v1.Pod)) //nolint:forcetypeassert // it was put as one
		if !ok || is.DeletionTimestamp == nil || *is.DeletionGracePeriodSeconds != 30 {
			t.Fatalf("%+v", is)
		}
		c := connect(s.Config())
		defer c.CloseIdle()
		if err := c.DeleteMirror(t.Context(), "default", "web", "another"); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if err := c.DeleteMirror(t.Context(), "default", "web", is.UID); err != nil {
			t.Error(err)
		}
		if all := apifake.All[*v1.Pod](s); len(all) != 0 {
			t.Errorf("%v", all)
		}
	})
}

func TestAnObjectOfAnotherUIDTakesThePlace(t *testing.T) {
	s := apifake.New()
	defer s.Close()
	first := s.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	same := s.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	other := s.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "mine"}})
	if same.GetUID() != first.GetUID() || other.GetUID() != "mine" {
		t.Errorf("%s %s %s", first.GetUID(), same.GetUID(), other.GetUID())
	}
}

func TestAServerThatIsDownRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apifake.New()
		defer s.Close()
		c := connect(s.Config())
		defer c.CloseIdle()
		s.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		for _, down := range []bool{false, true, false} {
			s.SetDown(down)
			time.Sleep(time.Second)
			if _, err := c.Get(t.Context()); (err != nil) != down {
				t.Errorf("down %t: %v", down, err)
			}
		}
		if got := s.Calls(); !slices.Equal(got, []string{"get nodes n1", "get nodes n1"}) {
			t.Errorf("%v", got)
		}
	})
}
