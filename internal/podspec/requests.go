package podspec

import v1 "k8s.io/api/core/v1"

// Requests is what a pod takes of a node: the sum of its containers or, where that is more, what its init containers
// need one after the other beside the sidecars started before; replaced by requests of the pod itself; plus overhead.
func Requests(pod *v1.Pod) v1.ResourceList {
	sum := Sum(&pod.Spec, func(c *v1.Container) v1.ResourceList { return c.Resources.Requests })
	if pod.Spec.Resources != nil {
		override(sum, pod.Spec.Resources.Requests)
	}
	add(sum, pod.Spec.Overhead)
	return sum
}

// Limits are the same of limits. Overhead adds to a limit, and makes none.
func Limits(pod *v1.Pod) v1.ResourceList {
	sum := Sum(&pod.Spec, func(c *v1.Container) v1.ResourceList { return c.Resources.Limits })
	if pod.Spec.Resources != nil {
		override(sum, pod.Spec.Resources.Limits)
	}
	for name, q := range pod.Spec.Overhead {
		if _, limited := sum[name]; limited {
			add(sum, v1.ResourceList{name: q})
		}
	}
	return sum
}

// Limited says that a pod as a whole is limited: it says so, or each of its containers does.
func Limited(pod *v1.Pod, r v1.ResourceName) bool {
	if pod.Spec.Resources != nil {
		if q := pod.Spec.Resources.Limits[r]; !q.IsZero() {
			return true
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if q := list[i].Resources.Limits[r]; q.IsZero() {
				return false
			}
		}
	}
	return len(pod.Spec.Containers) > 0
}

// Sum adds up what containers ask for: the regular ones and sidecars together or, where that is more, what an init container asks
// for beside the sidecars started before it. The answer is the caller's own.
func Sum(spec *v1.PodSpec, of func(*v1.Container) v1.ResourceList) v1.ResourceList {
	sum, sidecars, initPeak := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for i := range spec.Containers {
		add(sum, of(&spec.Containers[i]))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if Sidecar(c) {
			add(sum, of(c))
			add(sidecars, of(c))
			continue
		}
		during := sidecars.DeepCopy()
		add(during, of(c))
		raise(initPeak, during)
	}
	raise(sum, initPeak)
	return sum
}

func add(sum, more v1.ResourceList) {
	for name, q := range more {
		was := sum[name].DeepCopy()
		was.Add(q)
		sum[name] = was
	}
}

func raise(to, other v1.ResourceList) {
	for name, q := range other {
		if was, ok := to[name]; !ok || q.Cmp(was) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}

func override(sum, podLevel v1.ResourceList) {
	for name, q := range podLevel {
		if PodLevel(name) {
			sum[name] = q.DeepCopy()
		}
	}
}
