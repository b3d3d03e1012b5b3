package status

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resources reads "cpu=1/2 memory=1Gi/": a request and a limit of each.
func resources(line string) (r v1.ResourceRequirements) {
	for word := range strings.FieldsSeq(line) {
		name, both, _ := strings.Cut(word, "=")
		request, limit, _ := strings.Cut(both, "/")
		if request != "" {
			if r.Requests == nil {
				r.Requests = v1.ResourceList{}
			}
			r.Requests[v1.ResourceName(name)] = resource.MustParse(request)
		}
		if limit != "" {
			if r.Limits == nil {
				r.Limits = v1.ResourceList{}
			}
			r.Limits[v1.ResourceName(name)] = resource.MustParse(limit)
		}
	}
	return r
}

// sized makes a pod of lines "name: resources"; "pod" is the pod itself, "overhead" its overhead.
func sized(text string) *v1.Pod {
	p := pod(always)
	for line := range strings.SplitSeq(text, "; ") {
		name, rest, _ := strings.Cut(line, ":")
		r := resources(rest)
		switch name {
		case "pod":
			p.Spec.Resources = &r
		case "overhead":
			p.Spec.Overhead = r.Requests
		default:
			one := pod(always, name)
			with(one, on(name, func(c *v1.Container) { c.Resources = r }))
			p.Spec.Containers = append(p.Spec.Containers, one.Spec.Containers...)
			p.Spec.InitContainers = append(p.Spec.InitContainers, one.Spec.InitContainers...)
		}
	}
	return p
}

func TestQOS(t *testing.T) {
	const guaranteed, burstable, best = v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort
	for _, tt := range []struct {
		rule, pod string
		want      v1.PodQOSClass
	}{
		{"nothing said", "app:", best},
		{"zero says nothing", "app: cpu=0/0 memory=0/", best},
		{"other resources say nothing", "app: x/gpu=1/1", best},
		{"limits equal requests", "app: cpu=1/1 memory=1Gi/1Gi", guaranteed},
		{"written differently", "app: cpu=1000m/1 memory=1024Mi/1Gi", guaranteed},
		{"cpu alone", "app: cpu=1/1", burstable},
		{"a request alone", "app: cpu=1/ memory=1Gi/", burstable},
		{"a limit above the request", "app: cpu=1/2 memory=1Gi/1Gi", burstable},
		{"one container guaranteed, one silent", "app: cpu=1/1 memory=1Gi/1Gi; log:", burstable},
		{"init containers count", "i-a:; app: cpu=1/1 memory=1Gi/1Gi", burstable},
		{"all guaranteed", "i-a: cpu=1/1 memory=1Gi/1Gi; app: cpu=2/2 memory=1Gi/1Gi", guaranteed},
		{"the pod's own resources decide alone", "pod: cpu=1/1 memory=1Gi/1Gi; app: cpu=1/", guaranteed},
		{"unless they say nothing that a pod may say", "pod: x/gpu=1/; app: cpu=1/", burstable},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := QOS(sized(tt.pod)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
	if got := QOS(&v1.Pod{}); got != best {
		t.Errorf("no containers: %s", got)
	}
}

func TestRequests(t *testing.T) {
	for _, tt := range []struct {
		rule, pod, cpu, limit string
	}{
		{"containers add up", "app: cpu=1/2; log: cpu=500m/1", "1500m", "3"},
		{"the largest init container counts where it is more", "i-a: cpu=4/4; i-b: cpu=1/1; app: cpu=1/2", "4", "4"},
		{"sidecars add to the containers", "s-a: cpu=1/1; app: cpu=1/2", "2", "3"},
		{"and to the init containers after them", "s-a: cpu=1/1; i-b: cpu=3/3; app: cpu=1/1", "4", "4"},
		{"not to those before", "i-b: cpu=3/3; s-a: cpu=1/1; app: cpu=1/1", "3", "3"},
		{"the pod's own replace the sum", "pod: cpu=5/6; app: cpu=1/2", "5", "6"},
		{"overhead comes on top", "overhead: cpu=1/; app: cpu=1/2", "2", "3"},
		{"and makes no limit", "overhead: cpu=1/; app: cpu=1/", "2", "0"},
		{"nothing said", "app:", "0", "0"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			p := sized(tt.pod)
			s := Compute(Input{Pod: p, Now: now})
			if got := s.AllocatedResources.Cpu(); got.Cmp(resource.MustParse(tt.cpu)) != 0 {
				t.Errorf("requests %s, want %s", got, tt.cpu)
			}
			if s.Resources == nil {
				s.Resources = &v1.ResourceRequirements{}
			}
			if got := s.Resources.Limits.Cpu(); got.Cmp(resource.MustParse(tt.limit)) != 0 {
				t.Errorf("limits %s, want %s", got, tt.limit)
			}
		})
	}
}
