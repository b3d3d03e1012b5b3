package eviction

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

func requests(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests }
func limits(r *v1.ResourceRequirements) v1.ResourceList   { return r.Limits }

// request is how much of a resource a pod requests, as schedulers count it.
func request(p *v1.Pod, name v1.ResourceName) int64 {
	q, _ := total(p, name, requests)
	return q.Value()
}

// total is a pod's share of a resource: of the pod as a whole where that says so, else its containers, or the most its init
// containers need; plus overhead. It is written as its parts are. false: nobody says anything. Unlike
// podspec.Sum it allocates nothing: memory may be what runs short.
func total(p *v1.Pod, name v1.ResourceName, list func(*v1.ResourceRequirements) v1.ResourceList) (sum resource.Quantity, said bool) {
	if p.Spec.Resources != nil && podspec.PodLevel(name) {
		if q, ok := list(p.Spec.Resources)[name]; ok {
			return withOverhead(p, name, q.DeepCopy()), true
		}
	}
	get := func(c *v1.Container) resource.Quantity {
		q, ok := list(&c.Resources)[name]
		said = said || ok
		return q.DeepCopy()
	}
	for i := range p.Spec.Containers {
		sum.Add(get(&p.Spec.Containers[i]))
	}
	var sidecars, most resource.Quantity
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		n := get(c)
		if podspec.Sidecar(c) {
			sum.Add(n)
			sidecars.Add(n)
			n = sidecars.DeepCopy()
		} else {
			n.Add(sidecars)
		}
		if n.Cmp(most) > 0 {
			most = n
		}
	}
	if most.Cmp(sum) > 0 {
		sum = most
	}
	return withOverhead(p, name, sum), said
}

func withOverhead(p *v1.Pod, name v1.ResourceName, sum resource.Quantity) resource.Quantity {
	if q, ok := p.Spec.Overhead[name]; ok && sum.Sign() > 0 {
		sum.Add(q)
	}
	return sum
}
