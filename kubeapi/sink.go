package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// Sink writes pod statuses to the API server and deletes the objects of pods that are over. A static pod's status goes to
// its mirror. It is a status.Sink; the Manager in front of it repeats what fails.
//
// A status is compared with the object as the source shows it or as the last answer of the server had it, whichever is newer,
// so one request is all it takes. The request names the uid, and with another phase the version it was compared with, so that
// a pod somebody has ended stays ended. Should the server know better, or an answer have been lost, it is asked, and the rest
// is sent.
type Sink struct {
	Client *Client                      // required
	Mirror func(static *v1.Pod) *v1.Pod // the mirror of a static pod, nil while it has none; nil: static pods are not told

	mu   sync.Mutex
	last map[types.UID]answer // by the pod's own uid, until the source shows it or the pod is over
}

// answer is what the server said last of a pod; without one it is open whether it did what was asked.
type answer struct{ pod *v1.Pod }

// sinkTries is how often a status is compared anew when the object changes under our hands.
const sinkTries = 3

// UpdateStatus writes what differs. A pod that is gone or has a successor of its name is runtime.ErrNotFound; a status that is
// invalid to the server is status.ErrRefused.
func (s *Sink) UpdateStatus(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	shown := s.target(pod)
	if shown == nil {
		return nil
	}
	known := s.newest(pod.UID, shown)
	var now *v1.Pod
	var err error
	for try := 0; ; try++ {
		if known == nil {
			known, err = s.read(ctx, shown)
		}
		if err == nil {
			now, err = s.write(ctx, known, st)
		}
		if try == sinkTries || !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			break
		}
		known, err = nil, nil
	}
	switch {
	case errors.Is(err, runtime.ErrNotFound):
		s.forget(pod.UID)
	case apierrors.IsInvalid(err):
		err = fmt.Errorf("%w: %w", status.ErrRefused, err)
	case err == nil && now != shown:
		s.remember(pod.UID, answer{now})
	case err != nil && !refused(err):
		s.remember(pod.UID, answer{})
	}
	return err
}

// refused says that the server has not done what it was asked for; after other errors it may have.
func refused(err error) bool {
	st, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && st.ErrStatus.Code/100 == 4 && !apierrors.IsTimeout(err)
}

// target is the object to write to, nil for none.
func (s *Sink) target(pod *v1.Pod) *v1.Pod {
	switch {
	case !podspec.Static(pod):
		return pod
	case s.Mirror == nil:
		return nil
	}
	return s.Mirror(pod)
}

// newest is the later of what the source shows and what the server answered last; nil when that is not known.
func (s *Sink) newest(uid types.UID, shown *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.last[uid]
	last := a.pod
	switch {
	case !ok:
		return shown
	case last == nil:
		return nil
	}
	if c, err := resourceversion.CompareResourceVersion(last.ResourceVersion, shown.ResourceVersion); err != nil || c <= 0 || last.UID != shown.UID {
		delete(s.last, uid)
		return shown
	}
	return last
}

func (s *Sink) remember(uid types.UID, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[types.UID]answer{}
	}
	s.last[uid] = a
}

func (s *Sink) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, uid)
}

// read asks the server for the pod.
func (s *Sink) read(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	p := s.Client.pod(pod.Namespace, pod.Name)
	now := new(v1.Pod)
	if err := p.get(ctx, now); err != nil {
		return nil, err
	}
	if now.UID != pod.UID {
		return nil, fmt.Errorf("read %s: it is another one now, with uid %s: %w", p, now.UID, runtime.ErrNotFound)
	}
	now.ManagedFields = nil
	return now, nil
}

// write sends the difference to what is known and returns what is known then.
func (s *Sink) write(ctx context.Context, known *v1.Pod, st v1.PodStatus) (*v1.Pod, error) {
	patch, err := statusPatch(known, status.Merge(known, st))
	if err != nil || patch == nil {
		return known, err
	}
	now := new(v1.Pod)
	if err := s.Client.pod(known.Namespace, known.Name).patch(ctx, patch, now, "status"); err != nil {
		return nil, err
	}
	now.ManagedFields = nil
	return now, nil
}

// statusPatch is what makes one status the other, for the pod with that uid only; nil when nothing does.
func statusPatch(pod *v1.Pod, to v1.PodStatus) ([]byte, error) {
	was, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(&pod.Status)
	if err != nil {
		return nil, err
	}
	is, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(&to)
	if err != nil {
		return nil, err
	}
	rules, err := strategicpatch.NewPatchMetaFromStruct(to)
	if err != nil {
		return nil, err
	}
	diff, err := strategicpatch.CreateTwoWayMergeMapPatchUsingLookupPatchMeta(was, is, rules)
	if err != nil || len(diff) == 0 {
		return nil, err
	}
	only := map[string]any{"uid": pod.UID}
	if to.Phase != pod.Status.Phase {
		only["resourceVersion"] = pod.ResourceVersion
	}
	return json.Marshal(map[string]any{"metadata": only, "status": diff})
}

// Finished deletes the object of a pod that is asked to go, at once and only if it is still the same one. Others stay: what
// they were is for their owners to read.
func (s *Sink) Finished(ctx context.Context, pod *v1.Pod) error {
	s.forget(pod.UID)
	if podspec.Static(pod) || pod.DeletionTimestamp == nil {
		return nil
	}
	return s.Client.pod(pod.Namespace, pod.Name).remove(ctx, pod.UID)
}

func (c *Client) pod(namespace, name string) place { return place{c.pods, "pods", namespace, name} }

// CreateMirror makes a mirror pod. One that is there already is no error: the source will show it.
func (c *Client) CreateMirror(ctx context.Context, pod *v1.Pod) error {
	err := c.pod(pod.Namespace, pod.Name).create(ctx, pod, new(v1.Pod))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// DeleteMirror deletes a mirror pod at once, if it still has that uid. One that is gone is runtime.ErrNotFound.
func (c *Client) DeleteMirror(ctx context.Context, namespace, name string, uid types.UID) error {
	return c.pod(namespace, name).remove(ctx, uid)
}
