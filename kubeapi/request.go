package kubeapi

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// place is where an object is.
type place struct {
	client                    rest.Interface
	resource, namespace, name string
}

func (p place) String() string {
	if p.namespace == "" {
		return p.resource + " " + p.name
	}
	return p.resource + " " + p.namespace + "/" + p.name
}

// get reads an object into one.
func (p place) get(ctx context.Context, into kruntime.Object) error {
	return p.wrap("read", p.client.Get().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Name(p.name).Do(ctx).Into(into))
}

// create makes an object, or does what creating a subresource of the named one stands for.
func (p place) create(ctx context.Context, obj, into kruntime.Object, subresource ...string) error {
	r := p.client.Post().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource)
	if len(subresource) > 0 {
		r = r.Name(p.name).SubResource(subresource...)
	}
	return p.wrap("create", r.VersionedParams(&metav1.CreateOptions{}, parameters).Body(obj).Do(ctx).Into(into))
}

// update replaces an object.
func (p place) update(ctx context.Context, obj, into kruntime.Object) error {
	return p.wrap("update", p.client.Put().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Name(p.name).Body(obj).Do(ctx).Into(into))
}

// patch merges into an object, or a subresource of it.
func (p place) patch(ctx context.Context, patch []byte, into kruntime.Object, subresource ...string) error {
	return p.wrap("patch", p.client.Patch(types.StrategicMergePatchType).NamespaceIfScoped(p.namespace, p.namespace != "").
		Resource(p.resource).Name(p.name).SubResource(subresource...).Body(patch).Do(ctx).Into(into))
}

// remove deletes an object at once, if it is still the one with that uid.
func (p place) remove(ctx context.Context, uid types.UID) error {
	o := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if uid != "" {
		o.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := p.client.Delete().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Name(p.name).Body(&o).Do(ctx).Error()
	if apierrors.IsConflict(err) { // a later one of that name
		return fmt.Errorf("delete %s: %w: %w", p, runtime.ErrNotFound, err)
	}
	return p.wrap("delete", err)
}

// wrap says what was tried, and calls what is not there ErrNotFound.
func (p place) wrap(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s: %w: %w", what, p, runtime.ErrNotFound, err)
	}
	return fmt.Errorf("%s %s: %w", what, p, err)
}
