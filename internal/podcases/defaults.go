package podcases

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// setDefaults sets what an API server would have set, as far as a kubelet looks at it.
func setDefaults(pod *v1.Pod) {
	s := &pod.Spec
	set(&s.RestartPolicy, v1.RestartPolicyAlways)
	set(&s.DNSPolicy, v1.DNSClusterFirst)
	point(&s.EnableServiceLinks, true)
	point(&s.TerminationGracePeriodSeconds, 30)
	point(&s.SecurityContext, v1.PodSecurityContext{})
	set(&s.ServiceAccountName, "default")
	set(&s.SchedulerName, "default-scheduler")
	requests(s.Resources)
	for i := range s.InitContainers {
		container(s, &s.InitContainers[i])
	}
	for i := range s.Containers {
		container(s, &s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		container(s, (*v1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range s.Volumes {
		volume(&s.Volumes[i].VolumeSource)
	}
}

func container(s *v1.PodSpec, c *v1.Container) {
	set(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	set(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	policy := v1.PullIfNotPresent
	if !strings.Contains(c.Image, ":") {
		policy = v1.PullAlways
	}
	set(&c.ImagePullPolicy, policy)
	for i := range c.Ports {
		set(&c.Ports[i].Protocol, v1.ProtocolTCP)
		if s.HostNetwork {
			set(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			set(&from.FieldRef.APIVersion, "v1")
		}
	}
	requests(&c.Resources)
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			probe(p)
		}
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*v1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil && h.HTTPGet != nil {
				get(h.HTTPGet)
			}
		}
	}
}

func probe(p *v1.Probe) {
	set(&p.TimeoutSeconds, 1)
	set(&p.PeriodSeconds, 10)
	set(&p.SuccessThreshold, 1)
	set(&p.FailureThreshold, 3)
	if p.HTTPGet != nil {
		get(p.HTTPGet)
	}
	if p.GRPC != nil {
		point(&p.GRPC.Service, "")
	}
}

func get(h *v1.HTTPGetAction) {
	set(&h.Scheme, v1.URISchemeHTTP)
	set(&h.Path, "/")
}

// requests are the limits where nothing else is said.
func requests(r *v1.ResourceRequirements) {
	if r == nil {
		return
	}
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for name, q := range list {
			q.RoundUp(resource.Milli)
			list[name] = q
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	all := maps.Clone(r.Limits)
	maps.Copy(all, r.Requests)
	r.Requests = all
}

func volume(s *v1.VolumeSource) {
	mode := func(m **int32) { point(m, 0o644) }
	fields := func(list []v1.DownwardAPIVolumeFile) {
		for _, f := range list {
			if f.FieldRef != nil {
				set(&f.FieldRef.APIVersion, "v1")
			}
		}
	}
	switch {
	case s.ConfigMap != nil:
		mode(&s.ConfigMap.DefaultMode)
	case s.Secret != nil:
		mode(&s.Secret.DefaultMode)
	case s.DownwardAPI != nil:
		mode(&s.DownwardAPI.DefaultMode)
		fields(s.DownwardAPI.Items)
	case s.Projected != nil:
		mode(&s.Projected.DefaultMode)
		for _, from := range s.Projected.Sources {
			if from.DownwardAPI != nil {
				fields(from.DownwardAPI.Items)
			}
			if from.ServiceAccountToken != nil {
				point(&from.ServiceAccountToken.ExpirationSeconds, 60*60)
			}
		}
	case s.HostPath != nil:
		point(&s.HostPath.Type, v1.HostPathUnset)
	case s.Image != nil:
		set(&s.Image.PullPolicy, v1.PullIfNotPresent)
	}
}

func set[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

func point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
