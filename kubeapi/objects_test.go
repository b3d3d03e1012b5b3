package kubeapi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"key": value}}
}

func fixed(m *v1.ConfigMap) *v1.ConfigMap {
	yes := true
	m.Immutable = &yes
	return m
}

// watching begins Objects; the watch on Services is one of the server's watches.
func (b *bench) watching() *Objects {
	o := NewObjects(b.client)
	b.begin(o.Run)
	b.settle()
	return o
}

func (b *bench) value(o *Objects, name string) string {
	b.Helper()
	m, err := o.ConfigMap(b.Context(), "default", name)
	if errors.Is(err, runtime.ErrNotFound) {
		return "not found"
	}
	if err != nil {
		b.Error(err)
		return ""
	}
	return m.Data["key"]
}

func (b *bench) wantValue(o *Objects, name, want string) {
	b.Helper()
	if got := b.value(o, name); got != want {
		b.Errorf("%s is %q, wanted %q", name, got, want)
	}
}

func TestWhatNobodyFollowsIsRead(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(configMap("a", "1"))
		o := b.watching()
		b.calls()
		b.wantValue(o, "a", "1")
		b.wantValue(o, "b", "not found")
		b.wantCalls("get configmaps default/a", "get configmaps default/b")
		_, err := o.Secret(b.Context(), "default", "s")
		if !errors.Is(err, runtime.ErrNotFound) || !apierrors.IsNotFound(err) {
			t.Errorf("%v", err)
		}
	})
}

func TestWhatIsFollowedIsInMemory(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(configMap("a", "1"))
		b.server.Put(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, StringData: map[string]string{"k": "v"}})
		o := b.watching()
		var changes, secrets atomic.Int64
		stop := o.Follow("ConfigMap", "default", "a", func() { changes.Add(1) })
		defer o.Follow("Secret", "default", "a", func() { secrets.Add(1) })()
		defer o.Follow("PersistentVolumeClaim", "default", "a", func() { t.Error("called") })()
		b.settle()
		b.calls()
		if changes.Load() != 1 || secrets.Load() != 1 {
			t.Errorf("told %d and %d times", changes.Load(), secrets.Load())
		}
		b.wantValue(o, "a", "1")
		m := b.server.Put(configMap("a", "2"))
		b.settle()
		b.wantValue(o, "a", "2")
		b.server.Remove(m)
		b.settle()
		b.wantValue(o, "a", "not found")
		b.server.Put(configMap("a", "3"))
		b.settle()
		b.wantValue(o, "a", "3")
		if s, err := o.Secret(b.Context(), "default", "a"); err != nil || s.Name != "a" || s.ManagedFields != nil {
			t.Errorf("%+v, %v", s, err)
		}
		if changes.Load() != 4 {
			t.Errorf("told %d times", changes.Load())
		}
		b.wantCalls()
		stop()
		b.server.Put(configMap("a", "4"))
		b.settle()
		if changes.Load() != 4 {
			t.Error("told after the stop")
		}
	})
}

func TestAWatchEndsHalfAMinuteAfterTheLastOne(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(configMap("a", "1"))
		o := b.watching()
		first := o.Follow("ConfigMap", "default", "a", func() {})
		second := o.Follow("ConfigMap", "default", "a", func() {})
		b.settle()
		want := func(watches int, when string) {
			t.Helper()
			b.settle()
			if n := b.server.Watches(); n != watches+1 {
				t.Errorf("%s: %d watches", when, n-1)
			}
		}
		want(1, "two follow")
		first()
		first()
		time.Sleep(time.Minute)
		want(1, "one follows")
		second()
		time.Sleep(linger - time.Second)
		want(1, "just before")
		third := o.Follow("ConfigMap", "default", "a", func() {})
		time.Sleep(time.Minute)
		want(1, "followed again in time")
		third()
		time.Sleep(linger + time.Second)
		want(0, "nobody follows") // and settled
		if len(o.followed) != 0 {
			t.Errorf("%d objects kept", len(o.followed))
		}
		b.server.Put(configMap("a", "2"))
		b.wantValue(o, "a", "2")
	})
}

func TestAnImmutableObjectIsNotWatchedOn(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(fixed(configMap("a", "1")))
		o := b.watching()
		var told atomic.Int64
		stop := o.Follow("ConfigMap", "default", "a", func() { told.Add(1) })
		b.settle()
		if n := b.server.Watches(); n != 1 || told.Load() != 1 {
			t.Errorf("%d watches, told %d times", n-1, told.Load())
		}
		b.calls()
		b.wantValue(o, "a", "1")
		b.wantCalls()

		// It is deleted and made anew: who follows from now on sees that, and the others with them.
		b.server.Remove(configMap("a", ""))
		b.server.Put(fixed(configMap("a", "2")))
		stop2 := o.Follow("ConfigMap", "default", "a", func() {})
		b.settle()
		b.wantValue(o, "a", "2")
		if n := b.server.Watches(); n != 1 || told.Load() != 2 {
			t.Errorf("%d watches, told %d times", n-1, told.Load())
		}
		stop()
		stop2()
		time.Sleep(time.Minute)
		b.settle()
		if len(o.followed) != 0 {
			t.Errorf("%d objects kept", len(o.followed))
		}
	})
}

func TestOneThatBecomesImmutable(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(configMap("a", "1"))
		o := b.watching()
		defer o.Follow("ConfigMap", "default", "a", func() {})()
		b.settle()
		b.server.Put(fixed(configMap("a", "2")))
		b.settle()
		b.wantValue(o, "a", "2")
		if n := b.server.Watches(); n != 1 {
			t.Errorf("%d watches", n-1)
		}
	})
}

// A watch that does not come leaves reading.
func TestAReaderDoesNotWaitForAWatchForLong(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(configMap("a", "1"))
		o := b.watching()
		b.server.Answer(func(c apifake.Call) *apifake.Answer {
			if c.Verb != "get" {
				return &apifake.Answer{Err: apierrors.NewForbidden(v1.Resource("configmaps"), "a", errors.New("not yet"))}
			}
			return nil
		})
		var told atomic.Int64
		defer o.Follow("ConfigMap", "default", "a", func() { told.Add(1) })()
		begin := time.Now()
		b.wantValue(o, "a", "1")
		if took := time.Since(begin); took > firstLook+time.Second {
			t.Errorf("it took %v", took)
		}
		b.server.Answer(nil) // the authorizer has seen the pod
		time.Sleep(5 * time.Second)
		if told.Load() == 0 {
			t.Error("not told")
		}
	})
}

func TestAnOutageLeavesWhatIsKnown(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(configMap("a", "1"))
		b.server.Put(configMap("b", "1"))
		o := b.watching()
		for _, name := range []string{"a", "b"} {
			defer o.Follow("ConfigMap", "default", name, func() {})()
		}
		b.settle()
		b.server.SetDown(true)
		time.Sleep(10 * time.Minute)
		b.wantValue(o, "a", "1")
		b.server.Remove(configMap("a", ""))
		b.server.Put(configMap("b", "2"))
		b.server.Compact()
		b.server.SetDown(false)
		time.Sleep(2 * time.Minute)
		b.wantValue(o, "a", "not found")
		b.wantValue(o, "b", "2")
	})
}

func TestFollowingBeforeAndAfterRun(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(configMap("a", "1"))
		o := NewObjects(b.client)
		var told atomic.Int64
		defer o.Follow("ConfigMap", "default", "a", func() { told.Add(1) })()
		let := o.Follow("ConfigMap", "default", "b", func() {})
		let()
		b.settle()
		if b.server.Watches() != 0 {
			t.Error("it watches before Run")
		}
		time.Sleep(time.Minute)
		stop := b.begin(o.Run)
		b.settle()
		if told.Load() != 1 || b.server.Watches() != 2 {
			t.Errorf("told %d times, %d watches", told.Load(), b.server.Watches())
		}
		stop()
		b.settle()
		o.Follow("ConfigMap", "default", "c", func() {})()
		if n := b.server.Watches(); n != 0 {
			t.Errorf("%d watches after the stop", n)
		}
	})
}

func TestServices(t *testing.T) {
	inBubble(t, func(b *bench) {
		put := func(namespace, name, ip string) {
			b.server.Put(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip}})
		}
		put("default", "kubernetes", "10.0.0.1")
		put("default", "headless", "None")
		put("other", "db", "10.0.0.2")
		o := NewObjects(b.client)
		begin := time.Now()
		if _, err := o.Services(b.Context(), "default"); !errors.Is(err, runtime.ErrUnavailable) || time.Since(begin) > firstLook {
			t.Errorf("before Run, after %v: %v", time.Since(begin), err)
		}
		b.begin(o.Run)
		for namespace, want := range map[string]string{"default": "kubernetes", "other": "db", "empty": ""} {
			all, err := o.Services(b.Context(), namespace)
			if err != nil || len(all) > 1 || want == "" && len(all) > 0 || want != "" && (len(all) == 0 || all[0].Name != want) {
				t.Errorf("%s: %v, %v", namespace, all, err)
			}
		}
		b.server.SetDown(true)
		if all, err := o.Services(b.Context(), "other"); err != nil || len(all) != 1 {
			t.Errorf("while it is down: %v, %v", all, err)
		}
	})
}

func TestClasses(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "gvisor"})
		o := b.watching()
		if n := b.server.Watches(); n != 1 {
			t.Errorf("%d watches before anybody asks", n-1)
		}
		b.server.SetDown(true)
		if _, err := o.Class("sandboxed"); !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		b.server.SetDown(false)
		time.Sleep(time.Minute)
		if handler, err := o.Class("sandboxed"); handler != "gvisor" || err != nil {
			t.Errorf("%q, %v", handler, err)
		}
		if _, err := o.Class("none"); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
}

func TestTokens(t *testing.T) {
	inBubble(t, func(b *bench) {
		o := NewObjects(b.client)
		p := pod("web")
		p.UID = "u"
		token, expires, err := o.Token(b.Context(), p, "vault", 600)
		if err != nil || token != "token of default/default" || time.Until(expires).Round(time.Second) != 10*time.Minute {
			t.Errorf("%q %v %v", token, expires, err)
		}
		p.Spec.ServiceAccountName = "builder"
		if token, _, err := o.Token(b.Context(), p, "", 600); token != "token of default/builder" || err != nil {
			t.Errorf("%q %v", token, err)
		}
		b.wantCalls("create serviceaccounts/token default/default", "create serviceaccounts/token default/builder")
		b.server.Answer(always(apifake.Answer{Err: apierrors.NewNotFound(v1.Resource("serviceaccounts"), "builder")}))
		if _, _, err := o.Token(b.Context(), p, "", 600); !errors.Is(err, runtime.ErrNotFound) || !apierrors.IsNotFound(err) {
			t.Errorf("%v", err)
		}
	})
}

// Many come and go at once, with a server that comes and goes, too; the race detector looks on.
func TestObjectsAreSafeForConcurrentUse(t *testing.T) {
	inBubble(t, func(b *bench) {
		o := NewObjects(b.client)
		stop := b.begin(o.Run)
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
		defer cancel()
		names := []string{"a", "b", "c"}
		var workers []func(context.Context) error
		for i := range 8 {
			workers = append(workers, func(context.Context) error {
				for n := i; ctx.Err() == nil; n++ {
					name := names[n%3]
					release := o.Follow("ConfigMap", "default", name, func() {}) //nolint:contextcheck // it lasts as long as Run
					o.ConfigMap(ctx, "default", name)
					time.Sleep(time.Duration(n%7) * time.Second)
					release()
					time.Sleep(time.Duration(n%5*10) * time.Second)
				}
				return nil
			})
		}
		b.begin(workers...)
		for n := 0; ctx.Err() == nil; n++ {
			m := configMap(names[n%3], "x")
			if n%4 == 0 {
				m = fixed(m)
			}
			b.server.Remove(m)
			b.server.Put(m)
			b.server.SetDown(n%5 == 0)
			time.Sleep(time.Second)
		}
		b.server.SetDown(false)
		time.Sleep(3 * time.Minute)
		b.settle()
		if len(o.followed) != 0 || b.server.Watches() > 1 {
			t.Errorf("%d objects, %d watches", len(o.followed), b.server.Watches())
		}
		stop()
	})
}
