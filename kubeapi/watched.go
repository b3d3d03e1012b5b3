package kubeapi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock" //nolint:depguard // the type of the reflector's clock
)

// watched is what a selection of objects looks like now, kept by a reflector: by uid, so that an object and its successor of
// the same name are two. Objects are shared and read-only.
type watched[T metav1.Object] struct {
	log  klog.Logger
	name string
	kind kruntime.Object
	lw   *cache.ListWatch
	pace flowcontrol.RateLimiter // of new watches

	mu      sync.Mutex // guards the rest
	objects map[types.UID]T
	synced  chan struct{} // closed once a complete list has come
	closed  bool
	news    chan struct{} // closed at the next change
	changed func()        // called after each change, without the lock; nil: nobody cares
}

// newWatched selects objects like kind whose fields match; an empty namespace is all of them.
func newWatched[T metav1.Object](c *Client, client rest.Interface, kind kruntime.Object, resource, namespace string, selection fields.Selector) *watched[T] {
	w := &watched[T]{
		kind: kind, log: logr.FromSlogHandler(c.log.Handler()).V(2), name: strings.TrimSpace(resource + " " + namespace + " " + selection.String()),
		pace:    flowcontrol.NewTokenBucketRateLimiter(1, 10),
		objects: map[types.UID]T{}, synced: make(chan struct{}), news: make(chan struct{}),
	}
	list := func(o metav1.ListOptions) *rest.Request {
		o.FieldSelector = selection.String()
		return client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&o, parameters)
	}
	w.lw = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
			return list(o).Do(ctx).Get()
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			// The reflector begins anew at once when a list that comes object by object is cut in the middle, each time.
			if err := w.pace.Wait(ctx); err != nil {
				return nil, err
			}
			o.Watch = true
			return list(o).Watch(ctx)
		},
	}
	return w
}

// run keeps it true until ctx ends.
func (w *watched[T]) run(ctx context.Context) {
	r := cache.NewReflectorWithOptions(w.lw, w.kind, w, cache.ReflectorOptions{Name: w.name, Logger: &w.log, Clock: stopping{ctx: ctx}})
	r.RunWithContext(klog.NewContext(ctx, w.log))
}

// all are the objects, in no order; ok is false before a complete list has come.
func (w *watched[T]) all() (list []T, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		list = append(list, o)
	}
	return list, w.closed
}

// one is the only object there is or the newest of them; ok is false when there is none.
func (w *watched[T]) one() (obj T, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		if !ok || obj.GetCreationTimestamp().Time.Before(o.GetCreationTimestamp().Time) {
			obj, ok = o, true
		}
	}
	return obj, ok
}

// wait returns once a complete list has come.
func (w *watched[T]) wait(ctx context.Context) error {
	select {
	case <-w.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the API server has not shown %s yet: %w", w.name, context.Cause(ctx))
	}
}

// awaitOne returns once there is an object.
func (w *watched[T]) awaitOne(ctx context.Context) error {
	for {
		w.mu.Lock()
		news, there := w.news, len(w.objects) > 0
		w.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *watched[T]) edit(change func()) {
	w.mu.Lock()
	change()
	changed := w.changed
	close(w.news)
	w.news = make(chan struct{})
	w.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// Add, Update, Delete, Replace and Resync are the reflector's.
func (w *watched[T]) Add(obj any) error {
	o, err := as[T](obj)
	if err != nil {
		return err
	}
	w.edit(func() { w.objects[o.GetUID()] = o })
	return nil
}

// Update is the reflector's.
func (w *watched[T]) Update(obj any) error { return w.Add(obj) }

// Delete is the reflector's.
func (w *watched[T]) Delete(obj any) error {
	o, err := as[T](obj)
	if err != nil {
		return err
	}
	w.edit(func() { delete(w.objects, o.GetUID()) })
	return nil
}

// Replace is the reflector's.
func (w *watched[T]) Replace(list []any, _ string) error {
	objects := make(map[types.UID]T, len(list))
	for _, obj := range list {
		o, err := as[T](obj)
		if err != nil {
			return err
		}
		objects[o.GetUID()] = o
	}
	w.edit(func() {
		w.objects = objects
		if !w.closed {
			w.closed = true
			close(w.synced)
		}
	})
	return nil
}

// Resync is the reflector's.
func (w *watched[T]) Resync() error { return nil }

// Transformer is the reflector's: a list that comes object by object is kept in the short form from the start.
func (w *watched[T]) Transformer() cache.TransformFunc { return short }

// short drops who last wrote which field: nobody here wants it, and it can be half of an object.
func short(obj any) (any, error) {
	if m, ok := obj.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// as takes an object as what was asked for.
func as[T metav1.Object](obj any) (o T, err error) {
	o, ok := obj.(T)
	if !ok {
		return o, fmt.Errorf("%T instead of %T", obj, o)
	}
	o.SetManagedFields(nil)
	return o, nil
}

// stopping is a clock whose waits end with a context: not all those of the reflector do, and one is of up to a minute.
type stopping struct {
	clock.RealClock

	ctx context.Context
}

// After is the reflector's.
func (s stopping) After(d time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(s.ctx, d)
	context.AfterFunc(ctx, func() {
		cancel()
		over <- time.Now()
	})
	return over
}
