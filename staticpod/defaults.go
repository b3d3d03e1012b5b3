package staticpod

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// setDefaults sets what an API server sets on a pod that is created, as far as a node relies on it.
func setDefaults(pod *v1.Pod) {
	spec := &pod.Spec
	defaultSpec(spec)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for _, c := range containersOf(spec) {
		defaultContainer(c)
	}
	if spec.HostNetwork {
		for _, c := range containersOf(spec) {
			for i := range c.Ports {
				setZero(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
			}
		}
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		defaultPodResources(spec)
	}
}

// containersOf are the init containers, then the regular ones.
func containersOf(spec *v1.PodSpec) []*v1.Container {
	all := make([]*v1.Container, 0, len(spec.InitContainers)+len(spec.Containers))
	for i := range spec.InitContainers {
		all = append(all, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		all = append(all, &spec.Containers[i])
	}
	return all
}

// setZero gives a field that is zero its default.
func setZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setNil gives a field that is nil its default.
func setNil[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultSpec(spec *v1.PodSpec) {
	setZero(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	setZero(&spec.DNSPolicy, v1.DNSClusterFirst)
	setZero(&spec.RestartPolicy, v1.RestartPolicyAlways)
	setZero(&spec.SchedulerName, v1.DefaultSchedulerName)
	setNil(&spec.SecurityContext, v1.PodSecurityContext{})
	setNil(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	setNil(&spec.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	if *spec.TerminationGracePeriodSeconds < 0 {
		*spec.TerminationGracePeriodSeconds = 1
	}
}

func defaultContainer(c *v1.Container) {
	setZero(&c.ImagePullPolicy, pullPolicy(c.Image))
	setZero(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	setZero(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		setZero(&c.Ports[i].Protocol, v1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				setNil(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	c.Resources.Requests = requestLimits(c.Resources.Requests, c.Resources.Limits)
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// pullPolicy of an image that says none: always for a tag that moves, latest.
func pullPolicy(image string) v1.PullPolicy {
	name, _, digest := strings.Cut(image, "@")
	tag := ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		tag = name[i+1:]
	}
	if tag == "latest" || tag == "" && !digest {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func defaultProbe(p *v1.Probe) {
	if p == nil {
		return
	}
	setZero(&p.TimeoutSeconds, 1)
	setZero(&p.PeriodSeconds, 10)
	setZero(&p.SuccessThreshold, 1)
	setZero(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		setNil(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *v1.HTTPGetAction) {
	if h != nil {
		setZero(&h.Path, "/")
		setZero(&h.Scheme, v1.URISchemeHTTP)
	}
}

func defaultFieldRef(f *v1.ObjectFieldSelector) {
	if f != nil {
		setZero(&f.APIVersion, "v1")
	}
}

func defaultVolume(v *v1.VolumeSource) {
	if *v == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		setNil(&v.HostPath.Type, v1.HostPathUnset)
	case v.Image != nil:
		setZero(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.ISCSI != nil:
		setZero(&v.ISCSI.ISCSIInterface, "default")
	case v.DownwardAPI != nil:
		setNil(&v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		for i := range v.DownwardAPI.Items {
			defaultFieldRef(v.DownwardAPI.Items[i].FieldRef)
		}
	case v.Projected != nil:
		setNil(&v.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				for i := range s.DownwardAPI.Items {
					defaultFieldRef(s.DownwardAPI.Items[i].FieldRef)
				}
			}
		}
	}
}

// roundUp takes away what is finer than a thousandth.
func roundUp(l v1.ResourceList) {
	for name, q := range l {
		q.RoundUp(resource.Milli)
		l[name] = q
	}
}

// requestLimits adds a request for each limit that has none.
func requestLimits(requests, limits v1.ResourceList) v1.ResourceList {
	for name, q := range limits {
		if _, ok := requests[name]; !ok {
			if requests == nil {
				requests = v1.ResourceList{}
			}
			requests[name] = q.DeepCopy()
		}
	}
	return requests
}

// defaultPodResources fills the sizes of the pod as a whole from those of its containers.
func defaultPodResources(spec *v1.PodSpec) {
	r := spec.Resources
	roundUp(r.Limits)
	roundUp(r.Requests)
	if len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	for name, q := range podspec.Sum(spec, func(c *v1.Container) v1.ResourceList { return c.Resources.Limits }) {
		_, requested := r.Requests[name]
		if _, ok := r.Limits[name]; !ok && !requested && hugePages(name) {
			if r.Limits == nil {
				r.Limits = v1.ResourceList{}
			}
			r.Limits[name] = q
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	sum := podspec.Sum(spec, func(c *v1.Container) v1.ResourceList { return c.Resources.Requests })
	maps.DeleteFunc(sum, func(name v1.ResourceName, _ resource.Quantity) bool {
		return name != v1.ResourceCPU && name != v1.ResourceMemory
	})
	r.Requests = requestLimits(requestLimits(r.Requests, sum), r.Limits)
}

func hugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// names of a resource list, sorted, so that problems come in a fixed order.
func names(l v1.ResourceList) []v1.ResourceName { return slices.Sorted(maps.Keys(l)) }
