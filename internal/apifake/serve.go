package apifake

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// ServeHTTP is one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := parse(r)
	if err != nil {
		reply(w, r, nil, err)
		return
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	decide := s.answer
	s.mu.Unlock()
	if decide != nil {
		if a := decide(c); a != nil {
			select {
			case <-time.After(a.Delay):
			case <-r.Context().Done():
				return
			}
			if a.Err != nil {
				reply(w, r, nil, a.Err)
				return
			}
			if a.Lost {
				w = &cutting{w, a.Bytes}
			}
		}
	}
	if c.Verb == "watch" {
		s.watch(w, r, c)
		return
	}
	o, err := s.do(c)
	reply(w, r, o, err)
}

// cutting ends an answer in the middle.
type cutting struct {
	http.ResponseWriter
	left int
}

// WriteHeader drops the length.
func (c *cutting) WriteHeader(code int) {
	c.Header().Del("Content-Length")
	c.ResponseWriter.WriteHeader(code)
}

// Write ends the connection after enough.
func (c *cutting) Write(p []byte) (int, error) {
	if len(p) >= c.left {
		c.ResponseWriter.Write(p[:c.left])
		c.Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

// Flush sends what was written.
func (c *cutting) Flush() { c.ResponseWriter.(http.Flusher).Flush() } //nolint:forcetypeassert // both servers have it

// parse reads /api/v1/... and /apis/group/version/...
func parse(r *http.Request) (Call, error) {
	c := Call{Query: r.URL.Query()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		c.Group, parts = parts[1], parts[3:]
	default:
		return c, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		c.Namespace, parts = parts[1], parts[2:]
	}
	for i, to := range []*string{&c.Resource, &c.Name, &c.Sub} {
		if i < len(parts) {
			*to = parts[i]
		}
	}
	var err error
	if c.Body, err = io.ReadAll(r.Body); err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	c.Verb = map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	switch {
	case c.Verb == "get" && c.Query.Get("watch") != "" && c.Query.Get("watch") != "0":
		c.Verb = "watch"
	case c.Verb == "get" && c.Name == "":
		c.Verb = "list"
	case c.Verb == "patch" && r.Header.Get("Content-Type") != "application/strategic-merge-patch+json":
		return c, apierrors.NewBadRequest("content type of a patch: " + r.Header.Get("Content-Type"))
	}
	return c, nil
}

func (c Call) key() key {
	return key{schema.GroupResource{Group: c.Group, Resource: c.Resource}, c.Namespace, c.Name}
}

// do carries a request out.
func (s *Server) do(c Call) (runtime.Object, error) {
	gvk, known := kinds[c.key().GroupResource]
	if !known {
		return nil, apierrors.NewNotFound(c.key().GroupResource, c.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	switch c.Verb {
	case "get":
		if o := s.store.objects[c.key()]; o != nil {
			return clone(o), nil
		}
		return nil, notFound(c.key())
	case "list":
		return s.list(c, gvk)
	case "create":
		return s.create(c)
	case "update", "patch":
		return s.update(c)
	}
	return s.remove(c)
}

// selects says whether an object is in a list or a watch.
func (c Call) selects(k key, o Object) (bool, error) {
	if o == nil || k.GroupResource != c.key().GroupResource || c.Namespace != "" && k.namespace != c.Namespace {
		return false, nil
	}
	sel, err := fields.ParseSelector(c.Query.Get("fieldSelector"))
	if err != nil {
		return false, apierrors.NewBadRequest(err.Error())
	}
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	switch o := o.(type) {
	case *v1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
	case *v1.Service:
		set["spec.clusterIP"] = o.Spec.ClusterIP
	}
	return sel.Matches(set), nil
}

// seen is up to which version caches answer a request that wants at least a version.
func (s *Server) seen(want string) (int64, error) {
	version, err := strconv.ParseInt("0"+want, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest("resourceVersion " + want)
	}
	has := s.store.version
	if s.frozen != 0 {
		has = s.frozen
	}
	if version > has {
		e := apierrors.NewTimeoutError("Too large resource version: "+want, 1)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
		return 0, e
	}
	return has, nil
}

func (s *Server) list(c Call, gvk schema.GroupVersionKind) (runtime.Object, error) {
	version := s.store.version
	if want := c.Query.Get("resourceVersion"); want != "" {
		var err error
		if version, err = s.seen(want); err != nil {
			return nil, err
		}
	}
	var items []runtime.Object
	for k, o := range s.store.at(version) {
		in, err := c.selects(k, o)
		if err != nil {
			return nil, err
		}
		if in {
			items = append(items, clone(o))
		}
	}
	gvk.Kind += "List"
	list, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion(strconv.FormatInt(version, 10))
	return list, nil
}

func decode(c Call) (Object, error) {
	got, _, err := codecs.UniversalDeserializer().Decode(c.Body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o, ok := got.(Object)
	if !ok {
		return nil, apierrors.NewBadRequest("not an object")
	}
	return o, nil
}

func (s *Server) create(c Call) (runtime.Object, error) {
	o, err := decode(c)
	if err != nil {
		return nil, err
	}
	if t, ok := o.(*authnv1.TokenRequest); ok {
		t.Status = authnv1.TokenRequestStatus{Token: "token of " + c.Namespace + "/" + c.Name, ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(*t.Spec.ExpirationSeconds) * time.Second))}
		return t, nil
	}
	if strings.HasSuffix(c.Resource, "reviews") {
		return o, nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(c.Namespace)
	}
	if o.GetName() == "" && o.GetGenerateName() != "" {
		s.store.uids++
		o.SetName(o.GetGenerateName() + strconv.Itoa(s.store.uids))
	}
	switch k := keyOf(o); {
	case k.namespace != c.Namespace || k.GroupResource != c.key().GroupResource:
		return nil, apierrors.NewBadRequest("the object is for another place")
	case s.store.objects[k] != nil:
		return nil, apierrors.NewAlreadyExists(k.GroupResource, k.name)
	}
	o.SetUID("")
	return clone(s.store.put(o)), nil
}

// update is PUT and PATCH.
func (s *Server) update(c Call) (runtime.Object, error) {
	was := s.store.objects[c.key()]
	if was == nil {
		return nil, notFound(c.key())
	}
	var is Object
	var err error
	if c.Verb == "patch" {
		is, err = patched(was, c.Body)
	} else {
		is, err = decode(c)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case is.GetUID() != "" && is.GetUID() != was.GetUID():
		return nil, apierrors.NewConflict(c.key().GroupResource, c.Name, errors.New("Precondition failed: UID in precondition: "+string(is.GetUID())+", UID in object meta: "+string(was.GetUID())))
	case is.GetResourceVersion() != "" && is.GetResourceVersion() != was.GetResourceVersion():
		return nil, apierrors.NewConflict(c.key().GroupResource, c.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	is.SetUID(was.GetUID())
	is.SetCreationTimestamp(was.GetCreationTimestamp())
	is.SetDeletionTimestamp(was.GetDeletionTimestamp())
	is.SetManagedFields(was.GetManagedFields())
	keep(c.Sub == "status", was, is)
	if err := endsStay(was, is); err != nil {
		return nil, err
	}
	is.SetResourceVersion(was.GetResourceVersion())
	if same(was, is) {
		return clone(was), nil
	}
	return clone(s.store.put(is)), nil
}

// keep restores what the request may not change: all but the status, or the status.
func keep(status bool, was, is Object) {
	switch is := is.(type) {
	case *v1.Pod:
		if was := was.(*v1.Pod); status { //nolint:forcetypeassert // of one key
			is.Spec, is.OwnerReferences = was.Spec, was.OwnerReferences
		} else {
			is.Status = was.Status
		}
	case *v1.Node:
		if was := was.(*v1.Node); status { //nolint:forcetypeassert // of one key
			is.Spec = was.Spec
		} else {
			is.Status = was.Status
		}
	}
}

func same(a, b Object) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// patched applies a strategic merge patch.
func patched(was Object, patch []byte) (Object, error) {
	is := clone(was)
	text, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	empty, err := scheme.New(gvkOf(was))
	if err != nil {
		return nil, err
	}
	if text, err = strategicpatch.StrategicMergePatch(text, patch, empty); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := json.Unmarshal(text, empty); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return empty.(Object), nil //nolint:forcetypeassert // of the same kind
}

func (s *Server) remove(c Call) (runtime.Object, error) {
	var opts metav1.DeleteOptions
	if len(c.Body) > 0 {
		if _, _, err := codecs.UniversalDeserializer().Decode(c.Body, &schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, &opts); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	o := s.store.objects[c.key()]
	if o == nil {
		return nil, notFound(c.key())
	}
	if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != o.GetUID() {
		return nil, apierrors.NewConflict(c.key().GroupResource, c.Name, errors.New("the UID in the precondition does not match the UID in record"))
	}
	return clone(s.deletion(o, opts.GracePeriodSeconds)), nil
}

// serializer is what the client accepts first.
func serializerFor(r *http.Request) runtime.SerializerInfo {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, _, _ := strings.Cut(strings.TrimSpace(accepted), ";")
		if info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), kind); ok {
			return info
		}
	}
	return codecs.SupportedMediaTypes()[0] // JSON
}

// reply writes an object or an error.
func reply(w http.ResponseWriter, r *http.Request, o runtime.Object, err error) {
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	if err != nil {
		status := apierrors.APIStatus(nil)
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		st := status.Status()
		o, code = &st, int(st.Code)
		if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
		}
	}
	info := serializerFor(r)
	o.GetObjectKind().SetGroupVersionKind(gvkOf(o))
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(code)
	info.Serializer.Encode(o, w) //nolint:errcheck // the client is gone then
}
