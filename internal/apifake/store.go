package apifake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	certv1 "k8s.io/api/certificates/v1"
	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
)

// Object is anything the server keeps.
type Object interface {
	metav1.Object
	runtime.Object
}

//nolint:gochecknoglobals // built once, read-only
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, coordv1.AddToScheme, certv1.AddToScheme, authnv1.AddToScheme, authzv1.AddToScheme, nodev1.AddToScheme, storagev1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

//nolint:gochecknoglobals // built once, read-only
var codecs = serializer.NewCodecFactory(scheme)

//nolint:gochecknoglobals // built once, read-only
var kinds = func() map[schema.GroupResource]schema.GroupVersionKind {
	m := map[schema.GroupResource]schema.GroupVersionKind{}
	for gvk := range scheme.AllKnownTypes() {
		if o, err := scheme.New(gvk); err == nil {
			if _, ok := o.(Object); ok {
				plural, _ := meta.UnsafeGuessKindToResource(gvk)
				m[plural.GroupResource()] = gvk
			}
		}
	}
	return m
}()

// gvkOf is the kind of an object.
func gvkOf(o runtime.Object) schema.GroupVersionKind {
	all, _, err := scheme.ObjectKinds(o)
	if err != nil {
		panic(fmt.Sprintf("apifake: %v", err)) // a test's mistake
	}
	return all[0]
}

func resourceOf(o runtime.Object) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(gvkOf(o))
	return plural.GroupResource()
}

type key struct {
	schema.GroupResource
	namespace, name string
}

func keyOf(o Object) key { return key{resourceOf(o), o.GetNamespace(), o.GetName()} }

// change is a step of history; was is nil for a creation, is for a deletion.
type change struct {
	version int64
	key     key
	was, is Object
	last    Object // of a deletion, with its version
}

type store struct {
	version   int64
	compacted int64
	uids      int
	objects   map[key]Object
	history   []change
}

func newStore() store { return store{version: 1000, compacted: 1000, objects: map[key]Object{}} }

func clone(o Object) Object { return o.DeepCopyObject().(Object) } //nolint:forcetypeassert // it is a copy

// at are the objects as they were at a version; 0 is now.
func (st *store) at(version int64) map[key]Object {
	objects := maps.Clone(st.objects)
	for _, c := range slices.Backward(st.history) {
		switch {
		case version == 0 || c.version <= version:
			return objects
		case c.was == nil:
			delete(objects, c.key)
		default:
			objects[c.key] = c.was
		}
	}
	return objects
}

// put writes an object, which becomes the store's.
func (st *store) put(o Object) Object {
	k := keyOf(o)
	was := st.objects[k]
	st.version++
	if was == nil {
		if o.GetUID() == "" {
			st.uids++
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", st.uids)))
		}
		if o.GetCreationTimestamp().Time.IsZero() {
			o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
		}
	}
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "apifake", Operation: "Update", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{}`)}})
	o.SetResourceVersion(strconv.FormatInt(st.version, 10))
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	st.objects[k] = o
	st.history = append(st.history, change{version: st.version, key: k, was: was, is: o})
	return o
}

func (st *store) remove(k key) Object {
	was := st.objects[k]
	if was == nil {
		return nil
	}
	st.version++
	last := clone(was)
	last.SetResourceVersion(strconv.FormatInt(st.version, 10))
	delete(st.objects, k)
	st.history = append(st.history, change{version: st.version, key: k, was: was, last: last})
	return last
}

// Put creates or replaces an object, as somebody else does. uid and creation time of one that is there stay, unless o has a uid
// of its own. It returns what it is then.
func (s *Server) Put(o Object) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o = clone(o)
	if was := s.store.objects[keyOf(o)]; was != nil {
		if o.GetUID() != "" && o.GetUID() != was.GetUID() {
			s.store.remove(keyOf(o))
		} else {
			o.SetUID(was.GetUID())
			o.SetCreationTimestamp(was.GetCreationTimestamp())
		}
	}
	o = clone(s.store.put(o))
	s.wake()
	return o
}

// Remove deletes an object at once, as somebody else does.
func (s *Server) Remove(o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.remove(keyOf(o))
	s.wake()
}

// Delete asks for the deletion of an object, as somebody else does: a bound pod gets its grace period.
func (s *Server) Delete(o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.store.objects[keyOf(o)]; o != nil {
		s.deletion(o, nil)
		s.wake()
	}
}

// deletion is what DELETE does to an object. The lock is held.
func (s *Server) deletion(o Object, grace *int64) Object {
	pod, ok := o.(*v1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return s.store.remove(keyOf(o))
	}
	seconds := int64(30)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if grace != nil {
		seconds = *grace
	}
	if seconds == 0 && len(pod.Finalizers) == 0 {
		return s.store.remove(keyOf(o))
	}
	if pod.DeletionTimestamp != nil && (seconds > 0 || *pod.DeletionGracePeriodSeconds == 0) {
		return o
	}
	pod = pod.DeepCopy()
	at := metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second).Truncate(time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &seconds
	return s.store.put(pod)
}

// Get is an object as it is, into has its type, namespace and name; ok is false when there is none.
func Get[T Object](s *Server, like T) (o T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, ok := s.store.objects[keyOf(like)]
	if !ok {
		return o, false
	}
	return clone(is).(T), true //nolint:forcetypeassert // the key has the kind
}

// All are the objects of a kind, in no order.
func All[T Object](s *Server) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []T
	for _, o := range s.store.objects {
		if t, ok := o.(T); ok {
			out = append(out, clone(t).(T)) //nolint:forcetypeassert // it is a copy
		}
	}
	return out
}

func notFound(k key) error { return apierrors.NewNotFound(k.GroupResource, k.name) }
