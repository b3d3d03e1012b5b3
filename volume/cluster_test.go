package volume_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// cluster is an API server that answers as it is told to.
type cluster struct {
	mu       sync.Mutex // guards the rest
	objects  map[string]any
	follows  map[string]map[int]func()
	next     int
	away     error         // what all is answered with
	slow     time.Duration // how long an answer takes
	life     time.Duration // of tokens; 0: as asked for
	asked    map[string]int
	requests []string // of tokens
}

func newCluster(objects ...any) *cluster {
	c := &cluster{objects: map[string]any{}, follows: map[string]map[int]func(){}, asked: map[string]int{}}
	for _, o := range objects {
		c.put(o)
	}
	return c
}

func keyOf(object any) string {
	switch o := object.(type) {
	case *v1.ConfigMap:
		return "ConfigMap/" + o.Namespace + "/" + o.Name
	case *v1.Secret:
		return "Secret/" + o.Namespace + "/" + o.Name
	}
	panic("no such kind")
}

func (c *cluster) put(object any) { c.set(keyOf(object), object) }

// set has an object be another one, or none, and tells those who follow it.
func (c *cluster) set(key string, object any) {
	c.mu.Lock()
	var tell []func()
	if c.objects[key] = object; object == nil {
		delete(c.objects, key)
	}
	for _, changed := range c.follows[key] {
		tell = append(tell, changed)
	}
	c.mu.Unlock()
	for _, changed := range tell {
		changed()
	}
}

// be has the server answer slowly, or with an error.
func (c *cluster) be(away error, slow time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away, c.slow = away, slow
}

func (c *cluster) answer(ctx context.Context, key string) (any, error) {
	c.mu.Lock()
	object, away, slow := c.objects[key], c.away, c.slow
	c.asked[key]++
	c.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if away == nil && object == nil {
		return nil, runtime.ErrNotFound
	}
	return object, away
}

func (c *cluster) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	o, err := c.answer(ctx, "ConfigMap/"+namespace+"/"+name)
	if err != nil {
		return nil, err
	}
	return o.(*v1.ConfigMap), nil
}

func (c *cluster) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	o, err := c.answer(ctx, "Secret/"+namespace+"/"+name)
	if err != nil {
		return nil, err
	}
	return o.(*v1.Secret), nil
}

func (c *cluster) Follow(kind, namespace, name string, changed func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := kind + "/" + namespace + "/" + name
	if c.follows[key] == nil {
		c.follows[key] = map[int]func(){}
	}
	c.next++
	n := c.next
	c.follows[key][n] = changed
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.follows[key], n)
	}
}

// followed counts those who follow any object.
func (c *cluster) followed() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.follows {
		n += len(f)
	}
	return n
}

// Token has the number of the token as its text.
func (c *cluster) Token(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (string, time.Time, error) {
	c.mu.Lock()
	away, slow := c.away, c.slow
	c.requests = append(c.requests, fmt.Sprintf("%s/%s %s %d", pod.Namespace, pod.Spec.ServiceAccountName, audience, seconds))
	text, life := fmt.Sprint("token ", len(c.requests)), c.life
	c.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return "", time.Time{}, context.Cause(ctx)
		}
	}
	if away != nil {
		return "", time.Time{}, away
	}
	if life == 0 {
		life = time.Duration(seconds) * time.Second
	}
	return text, time.Now().Add(life), nil
}

func (c *cluster) tokens() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

func configMap(name string, pairs ...string) *v1.ConfigMap {
	o := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		o.Data[pairs[i]] = pairs[i+1]
	}
	return o
}

func secret(name string, pairs ...string) *v1.Secret {
	o := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{}}
	for i := 0; i < len(pairs); i += 2 {
		o.Data[pairs[i]] = []byte(pairs[i+1])
	}
	return o
}

func ofConfigMap(volume, name string, items ...v1.KeyToPath) v1.Volume {
	s := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, Items: items}
	return v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{ConfigMap: s}}
}

func ofSecret(volume, name string, items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name, Items: items}}}
}

func projected(volume string, sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}
}

func token(path string, seconds int64) v1.VolumeProjection {
	return v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: path, ExpirationSeconds: &seconds}}
}

// rig is a manager at work in a bubble, with all it says.
type rig struct {
	house
	*cluster
	t *testing.T // of the bubble

	mu     sync.Mutex // guards the rest
	woken  []types.UID
	events []string
}

func (r *rig) Event(e observe.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e.About.Name+" "+e.Reason+" "+e.Message)
}

func (r *rig) wakes() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.woken)
}

func (r *rig) told() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events
}

// run has a manager at work on the volumes at root, empty for new ones, and looks that it ends.
func (c *cluster) run(t *testing.T, root string, act func(r *rig), change ...func(*volume.Config)) {
	t.Helper()
	r := &rig{cluster: c, t: t}
	r.house = newHouse(t, func(cfg *volume.Config) {
		if root != "" {
			cfg.Root = root
		}
		cfg.Objects, cfg.Tokens, cfg.Observe.Events = c, c, r
		cfg.Changed = func(uid types.UID) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.woken = append(r.woken, uid)
		}
		for _, c := range change {
			c(cfg)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	act(r)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// bubble is run in a bubble, in whose time waiting costs nothing.
func (c *cluster) bubble(t *testing.T, act func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { c.run(t, "", act) })
}
