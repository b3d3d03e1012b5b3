package offline

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// A machine reboots without an API server: pods and all they need are there, as they were.
func TestARebootWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: filepath.Join(t.TempDir(), "a", "b"), key: key}
		a := l.start(t, s)
		a.wants(t, false)
		s.delivers(true, web("u1"), podOf("db", "u2", "pg"))
		a.wants(t, true, "db:pg", "web:nginx")
		want := append(slices.Clone(allOfWeb), "token token 1 of u1 for vault")
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got, want) {
			t.Fatalf("answered %q", got)
		}
		a.stop()

		s.goes(errDown)
		a = l.start(t, s)
		a.wants(t, false, "db:pg", "web:nginx")
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got, want) {
			t.Errorf("answered %q, want %q", got, want)
		}
		for _, p := range a.pods {
			was := podOf("db", "u2", "pg")
			if p.Name == "web" {
				was = web("u1")
			}
			was.ManagedFields = nil
			if !equality.Semantic.DeepEqual(p, was) {
				t.Errorf("remembered %+v, was %+v", p, was)
			}
		}

		s.goes(nil) // the server is back: it counts
		s.keep("configmap/shop/settings", &v1.ConfigMap{Data: map[string]string{"colour": "blue"}})
		s.delivers(true, web("u1"), podOf("new", "u3", "x"))
		a.wants(t, true, "new:x", "web:nginx")
		want[0], want[6] = "settings blue", "token token 2 of u1 for vault"
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got, want) {
			t.Errorf("answered %q, want %q", got, want)
		}
		a.stop()
		s.goes(errDown)
		a = l.start(t, s)
		a.wants(t, false, "new:x", "web:nginx")
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got, want) {
			t.Errorf("answered %q, want %q", got, want)
		}
	})
}

func TestWhatIsKnownToBeDeletedDoesNotStartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: t.TempDir(), key: key}
		a := l.start(t, s)
		ends := podOf("b", "u2", "x")
		ends.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		s.delivers(true, podOf("a", "u1", "x"), podOf("b", "u2", "x"), podOf("c", "u3", "x"))
		s.delivers(true, podOf("a", "u1", "x"), ends)
		a.stop()
		s.goes(errDown)
		a = l.start(t, s)
		a.wants(t, false, "a:x")
		s.delivers(false, podOf("a", "u1", "x"), podOf("d", "u4", "x")) // not complete: takes nothing away and adds nothing
		a.wants(t, false, "a:x", "d:x")
		a.stop()
		a = l.start(t, s)
		a.wants(t, false, "a:x")
		ends = podOf("a", "u1", "x")
		ends.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		s.delivers(false, ends) // but an end is an end
		a.stop()
		a = l.start(t, s)
		a.wants(t, false)
	})
}

// A source that fails is started again by its caller; what was remembered is not delivered a second time.
func TestASourceThatReturns(t *testing.T) {
	s := stocked()
	broken := errors.New("broken")
	runs := 0
	c, err := New(Config{Dir: t.TempDir(), Objects: s, Source: sourceFunc(func(_ context.Context, set func([]*v1.Pod, bool)) error {
		runs++
		set(nil, true)
		return broken
	})})
	if err != nil {
		t.Fatal(err)
	}
	var sets []string
	for range 2 {
		if err := c.Run(t.Context(), func(pods []*v1.Pod, complete bool) { sets = append(sets, fmt.Sprint(len(pods), complete)) }); !errors.Is(err, broken) {
			t.Errorf("error %v", err)
		}
	}
	if !slices.Equal(sets, []string{"0 false", "0 true", "0 true"}) {
		t.Errorf("sets %v", sets)
	}
}

type sourceFunc func(ctx context.Context, set func([]*v1.Pod, bool)) error

func (f sourceFunc) Run(ctx context.Context, set func([]*v1.Pod, bool)) error { return f(ctx, set) }

// A source that refers to nothing needs no objects behind it.
func TestPodsAlone(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	for _, want := range []int{0, 1} { // pods that are remembered
		c, err := New(Config{Dir: dir, Source: sourceFunc(func(_ context.Context, set func([]*v1.Pod, bool)) error {
			set([]*v1.Pod{podOf("till", "u1", "x")}, true)
			return nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		var sets [][]*v1.Pod
		if err := c.Run(ctx, func(pods []*v1.Pod, _ bool) { sets = append(sets, pods) }); err != nil {
			t.Fatal(err)
		}
		if len(sets) != 2 || len(sets[0]) != want || len(sets[1]) != 1 {
			t.Errorf("delivered %v, want %d and 1 pods", sets, want)
		}
		defer c.Follow("ConfigMap", "shop", "settings", func() {})()
		_, noMap := c.ConfigMap(ctx, "shop", "settings")
		_, noSecret := c.Secret(ctx, "shop", "settings")
		_, _, noToken := c.Token(ctx, podOf("till", "u1", "x"), "", 600)
		_, noClass := c.Class("micro")
		for what, err := range map[string]error{"map": noMap, "secret": noSecret, "token": noToken, "class": noClass} {
			if !errors.Is(err, runtime.ErrNotFound) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if services, err := c.Services(ctx, "shop"); len(services) > 0 || err != nil {
			t.Errorf("services %v, %v", services, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	s := stocked()
	for _, c := range []Config{
		{},
		{Dir: "x", Objects: s},
		{Source: s, Objects: s},
		{Dir: "x", Source: s, Objects: s, Key: []byte("short secret")},
		{Dir: "x", Source: s, Objects: s, Key: []byte{}},
	} {
		if _, err := New(c); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
