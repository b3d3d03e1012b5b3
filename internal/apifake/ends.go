package apifake

import (
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// endsStay refuses a status in which a container that ended for good has not.
func endsStay(was, is Object) error {
	pod, ok := is.(*v1.Pod)
	if !ok || plan.CouldRestartAll(pod) {
		return nil
	}
	old := was.(*v1.Pod) //nolint:forcetypeassert // of one key
	for _, l := range []struct{ was, is []v1.ContainerStatus }{
		{old.Status.ContainerStatuses, pod.Status.ContainerStatuses},
		{old.Status.InitContainerStatuses, pod.Status.InitContainerStatuses},
	} {
		for _, a := range l.was {
			for i, b := range l.is {
				c, _ := plan.Find(pod, b.Name)
				if a.Name != b.Name || a.State.Terminated == nil || b.State.Terminated != nil || c != nil && plan.RestartsAfter(pod, c, a.State.Terminated.ExitCode) {
					continue
				}
				at := field.NewPath("status", "containerStatuses").Index(i).Child("state")
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod.Name, field.ErrorList{field.Forbidden(at, "may not be transitioned to non-terminated state")})
			}
		}
	}
	return nil
}
