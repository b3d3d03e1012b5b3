package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Objects reads what pods on this node refer to. ConfigMaps and Secrets are watched one by one while somebody follows them,
// Services all, RuntimeClasses all from the first time somebody asks. Answers are shared and read-only. Nothing is watched
// before Run, nor after it; Run is for once.
type Objects struct {
	client *Client

	services *watched[*v1.Service]
	classes  *watched[*nodev1.RuntimeClass]

	mu       sync.Mutex // guards the rest
	followed map[object]*follower
	run      context.Context // nil before Run
	wanted   []func(ctx context.Context)
	inClass  bool
	wg       sync.WaitGroup
}

type object struct{ kind, namespace, name string }

// follower is one object that is watched for those who follow it.
type follower struct {
	seen  *watched[metav1.Object]
	users map[*func()]bool
	stop  context.CancelFunc
	still bool        // it cannot change, so the watch has ended
	idle  *time.Timer // runs while nobody follows
}

const (
	linger    = 30 * time.Second // how long an object is watched after the last one has let go: pods often follow one another
	firstLook = 2 * time.Second  // how long a reader waits for a watch that has just begun
)

// NewObjects makes Objects at rest.
func NewObjects(c *Client) *Objects {
	o := &Objects{
		client: c, followed: map[object]*follower{},
		services: newWatched[*v1.Service](c, c.pods, &v1.Service{}, "services", "", fields.OneTermNotEqualSelector("spec.clusterIP", "None")),
		classes:  newWatched[*nodev1.RuntimeClass](c, c.classes, &nodev1.RuntimeClass{}, "runtimeclasses", "", fields.Everything()),
	}
	o.wanted = append(o.wanted, o.services.run)
	return o
}

// Run watches until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	o.mu.Lock()
	o.run = ctx
	for _, begin := range o.wanted {
		o.wg.Go(func() { begin(ctx) })
	}
	o.wanted = nil
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.run = nil
	o.mu.Unlock()
	o.wg.Wait()
	return nil
}

// begin starts a watch, now or once Run runs. The lock is held.
func (o *Objects) begin(watch func(ctx context.Context)) {
	if o.run == nil {
		o.wanted = append(o.wanted, watch)
		return
	}
	ctx := o.run
	o.wg.Go(func() { watch(ctx) })
}

// Follow watches a ConfigMap, a Secret or all ClusterTrustBundles until stop is called, and calls changed when it is first seen and after each change.
// changed must not block, and may still be called once while stop is. One that is immutable is watched no longer than until it
// is seen, which happens anew for each who begins to follow. Other kinds never change.
func (o *Objects) Follow(kind, namespace, name string, changed func()) (stop func()) {
	if kind != "ConfigMap" && kind != "Secret" && kind != "ClusterTrustBundle" {
		return func() {}
	}
	key := object{kind, namespace, name}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.followed[key]
	if f == nil {
		f = &follower{users: map[*func()]bool{}, still: true}
		o.followed[key] = f
	}
	if f.still {
		o.watch(key, f)
	}
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	user := &changed
	f.users[user] = true
	return sync.OnceFunc(func() { o.release(key, f, user) })
}

// watch begins to watch. The lock is held.
func (o *Objects) watch(key object, f *follower) {
	var seen *watched[metav1.Object]
	switch key.kind {
	case "Secret":
		seen = newWatched[metav1.Object](o.client, o.client.pods, &v1.Secret{}, "secrets", key.namespace, named(key.name))
	case "ClusterTrustBundle":
		seen = newWatched[metav1.Object](o.client, o.client.certificates, &certv1.ClusterTrustBundle{}, "clustertrustbundles", "", fields.Everything())
	default:
		seen = newWatched[metav1.Object](o.client, o.client.pods, &v1.ConfigMap{}, "configmaps", key.namespace, named(key.name))
	}
	own, cancel := context.WithCancel(context.Background())
	seen.changed = func() { o.tell(f, seen, cancel) }
	f.seen, f.stop, f.still = seen, cancel, false
	o.begin(func(ctx context.Context) {
		defer context.AfterFunc(ctx, cancel)()
		seen.run(own)
	})
}

// immutable says that an object can only be deleted.
func immutable(obj metav1.Object) bool {
	var is *bool
	switch obj := obj.(type) {
	case *v1.ConfigMap:
		is = obj.Immutable
	case *v1.Secret:
		is = obj.Immutable
	}
	return is != nil && *is
}

func (o *Objects) tell(f *follower, seen *watched[metav1.Object], stop context.CancelFunc) {
	obj, there := seen.one()
	o.mu.Lock()
	if there && immutable(obj) {
		stop()
		f.still = f.still || f.seen == seen
	}
	users := make([]func(), 0, len(f.users))
	for u := range f.users {
		users = append(users, *u)
	}
	o.mu.Unlock()
	for _, changed := range users {
		changed()
	}
}

// release ends one following, and after a while the watch.
func (o *Objects) release(key object, f *follower, user *func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(f.users, user)
	if len(f.users) > 0 {
		return
	}
	f.idle = time.AfterFunc(linger, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(f.users) == 0 && o.followed[key] == f {
			delete(o.followed, key)
			f.stop()
		}
	})
}

// seen is the watch on what somebody follows, nil for none.
func (o *Objects) seen(key object) *watched[metav1.Object] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f := o.followed[key]; f != nil {
		return f.seen
	}
	return nil
}

// look answers from the watch on an object, if there is one that has come so far; ok is false when it has not.
func (o *Objects) look(ctx context.Context, key object) (obj metav1.Object, ok bool, err error) {
	seen := o.seen(key)
	if seen == nil {
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	if seen.wait(ctx) != nil {
		return nil, false, nil
	}
	obj, ok = seen.one()
	if !ok {
		return nil, true, fmt.Errorf("%s %q: %w", key.kind, key.namespace+"/"+key.name, runtime.ErrNotFound)
	}
	return obj, true, nil
}

// ConfigMap is one ConfigMap: from memory if somebody follows it, else from the server.
func (o *Objects) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return read(ctx, o, object{"ConfigMap", namespace, name}, "configmaps", new(v1.ConfigMap))
}

// Secret is one Secret: from memory if somebody follows it, else from the server.
func (o *Objects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return read(ctx, o, object{"Secret", namespace, name}, "secrets", new(v1.Secret))
}

func read[T interface {
	metav1.Object
	kruntime.Object
}](ctx context.Context, o *Objects, key object, resource string, into T) (T, error) {
	var none T
	switch obj, ok, err := o.look(ctx, key); {
	case err != nil:
		return none, err
	case ok:
		return obj.(T), nil
	}
	p := place{o.client.pods, resource, key.namespace, key.name}
	if err := known(ctx, func() error { return p.get(ctx, into) }); err != nil {
		return none, err
	}
	return into, nil
}

// Services are the Services of a namespace that have a cluster address. As long as they are not known it waits a little, and
// is runtime.ErrUnavailable then.
func (o *Objects) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	if err := o.services.wait(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	all, _ := o.services.all()
	var out []*v1.Service
	for _, s := range all {
		if s.Namespace == namespace {
			out = append(out, s)
		}
	}
	return out, nil
}

// Class is the handler of a RuntimeClass. It waits a while until the classes are known.
func (o *Objects) Class(name string) (handler string, err error) {
	o.mu.Lock()
	if !o.inClass {
		o.inClass = true
		o.begin(o.classes.run)
	}
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), firstLook)
	defer cancel()
	if err := o.classes.wait(ctx); err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	all, _ := o.classes.all()
	for _, c := range all {
		if c.Name == name {
			return c.Handler, nil
		}
	}
	return "", fmt.Errorf("runtimeclass.node.k8s.io %q: %w", name, runtime.ErrNotFound)
}

// Token asks for a token of the pod's service account that ends with the pod. audience may be empty: the API server itself.
func (o *Objects) Token(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (token string, expires time.Time, err error) {
	ask := &authnv1.TokenRequest{Spec: authnv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authnv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		ask.Spec.Audiences = []string{audience}
	}
	answer := new(authnv1.TokenRequest)
	p := place{o.client.pods, "serviceaccounts", pod.Namespace, accountOf(pod)}
	if err := known(ctx, func() error { return p.create(ctx, ask, answer, "token") }); err != nil {
		return "", time.Time{}, err
	}
	if answer.Status.Token == "" {
		return "", time.Time{}, errors.New("the API server answered with an empty token")
	}
	return answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
}

// known asks again, a few times, what is forbidden: a busy API server tells its authorizer last that a pod has come to this
// node, and until then nothing of the pod is allowed.
func known(ctx context.Context, ask func() error) error {
	err := ask()
	for _, wait := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 500 * time.Millisecond} {
		if !apierrors.IsForbidden(err) {
			break
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		err = ask()
	}
	return err
}
