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
		"$": "$", "a$": "a$", "$A": "$A", "$(A": "$(A", "$(E)|": "|", "$$$$": "$$", "$()": "$()",
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
