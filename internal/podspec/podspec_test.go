package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestExpand(t *testing.T) {
	known := map[string]string{"A": "1", "B": "two", "E": ""}
	for in, want := range map[string]string{
		"plain": "plain", "$(A)": "1", "x$(A)y$(B)z": "x1ytwoz", "$(NO)": "$(NO)", "$$(A)": "$(A)", "$$$(A)": "$1",
		"$": "$", "a$": "a$", "$A": "$A", "$(A": "$(A", "$(E)|": "|", "$$$$": "$$", "$()": "$()", "$ä$(A)": "$ä1", "$(A $$": "$(A $",
	} {
		if got := Expand(in, func(n string) (string, bool) { v, ok := known[n]; return v, ok }); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestQOS(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	full := v1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")}
	for _, tt := range []struct {
		name       string
		containers []v1.ResourceRequirements
		want       v1.PodQOSClass
	}{
		{"nothing asked", []v1.ResourceRequirements{{}}, v1.PodQOSBestEffort},
		{"all limited to what is asked", []v1.ResourceRequirements{full, full}, v1.PodQOSGuaranteed},
		{"limits without requests: an API server would have made them requests", []v1.ResourceRequirements{{Limits: list("1", "1Gi")}}, v1.PodQOSBurstable},
		{"one container without", []v1.ResourceRequirements{full, {}}, v1.PodQOSBurstable},
		{"no memory limit", []v1.ResourceRequirements{{Limits: list("1", "")}}, v1.PodQOSBurstable},
		{"request below limit", []v1.ResourceRequirements{{Requests: list("1", "1Gi"), Limits: list("2", "1Gi")}}, v1.PodQOSBurstable},
		{"other resources do not count", []v1.ResourceRequirements{{Limits: v1.ResourceList{"example.com/gpu": resource.MustParse("1")}}}, v1.PodQOSBestEffort},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := &v1.Pod{}
			for _, r := range tt.containers {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: r})
			}
			if got := QOS(pod); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAmount(t *testing.T) {
	has := func(pairs ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	const huge = "hugepages-2Mi"
	bare, limited := &v1.Container{Name: "bare"}, &v1.Container{Name: "limited"}
	limited.Resources = v1.ResourceRequirements{Requests: has("cpu", "250m"), Limits: has("cpu", "500m", huge, "4Mi")}
	plain, level := &v1.Pod{}, &v1.Pod{}
	plain.Spec.Containers = []v1.Container{*bare, *limited}
	level.Spec.Containers = plain.Spec.Containers
	level.Spec.Resources = &v1.ResourceRequirements{Limits: has("cpu", "2", huge, "8Mi")}
	node := has("cpu", "4", "memory", "8Gi", "example.com/gpu", "2")
	for _, tt := range []struct {
		rule      string
		pod       *v1.Pod
		c         *v1.Container
		of, field string
		divisor   string
		want      string
	}{
		{"a limit is rounded up", plain, limited, "", "limits.cpu", "0", "1"},
		{"in units of the divisor", plain, limited, "", "limits.cpu", "1m", "500"},
		{"of another container", plain, bare, "limited", "requests.cpu", "1m", "250"},
		{"a limit that is not there is what the node has", plain, bare, "", "limits.memory", "1Mi", "8192"},
		{"or what the pod has", level, bare, "", "limits.cpu", "0", "2"},
		{"a request that is not there is nothing", plain, bare, "", "requests.memory", "0", "0"},
		{"huge pages of a container", plain, limited, "", "limits." + huge, "1Mi", "4"},
		{"huge pages are neither the pod's", level, bare, "", "limits." + huge, "0", "0"},
		{"other resources are not shown", plain, bare, "", "limits.example.com/gpu", "0", "error"},
		{"nor other lists", plain, bare, "", "claims.cpu", "0", "error"},
		{"no such container", plain, bare, "none", "limits.cpu", "0", "error"},
	} {
		ref := &v1.ResourceFieldSelector{ContainerName: tt.of, Resource: tt.field, Divisor: resource.MustParse(tt.divisor)}
		got, err := Amount(tt.pod, tt.c, ref, node)
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%s: got %s (%v), want %s", tt.rule, got, err, tt.want)
		}
	}
}
