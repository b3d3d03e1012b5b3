package eviction

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

func requests(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests }
func limits(r *v1.ResourceRequirements) v1.ResourceList   { return r.Limits }

// request is how much of a resource a pod requests, as schedulers count it.
func request(p *v1.Pod, name v1.ResourceName) int64 {
	n, _ := total(p, name, requests)
	return n
}

// total is a pod's share of a resource: of the pod as a whole where that says so, else its containers, or the most its init
// containers need; plus overhead. false: nobody says anything.
func total(p *v1.Pod, name v1.ResourceName, list func(*v1.ResourceRequirements) v1.ResourceList) (int64, bool) {
	sum, said := int64(0), false
	if p.Spec.Resources != nil && podspec.PodLevel(name) {
		if q, ok := list(p.Spec.Resources)[name]; ok {
			return withOverhead(p, name, q.Value()), true
		}
	}
	get := func(c *v1.Container) int64 {
		q, ok := list(&c.Resources)[name]
		said = said || ok
		return q.Value()
	}
	for i := range p.Spec.Containers {
		sum += get(&p.Spec.Containers[i])
	}
	sidecars, most := int64(0), int64(0)
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		n := get(c)
		if sidecar(c) {
			sum, sidecars = sum+n, sidecars+n
			n = 0
		}
		most = max(most, sidecars+n)
	}
	return withOverhead(p, name, max(sum, most)), said
}

func withOverhead(p *v1.Pod, name v1.ResourceName, n int64) int64 {
	if q, ok := p.Spec.Overhead[name]; ok && n > 0 {
		n += q.Value()
	}
	return n
}

func sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
