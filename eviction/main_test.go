package eviction

import (
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod makes a pod of one container named c.
func pod(name string, edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func amounts(l map[string]string) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range l {
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func requesting(name, q string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts(map[string]string{name: q}) }
}

func limited(name, q string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts(map[string]string{name: q}) }
}

func prio(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func emptyDir(name, limit string, medium v1.StorageMedium) func(*v1.Pod) {
	return func(p *v1.Pod) {
		v := &v1.EmptyDirVolumeSource{Medium: medium}
		if limit != "" {
			v.SizeLimit = new(resource.MustParse(limit))
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: v}})
	}
}

const mi = 1 << 20
