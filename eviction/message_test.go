package eviction

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestExplain(t *testing.T) {
	usage := Usage{Memory: 700 * mi, Containers: []ContainerUsage{
		{Name: "c", Memory: 600 * mi, Rootfs: Amount{Bytes: 3 * mi}, Logs: Amount{Bytes: mi}},
		{Name: "i", Memory: 99 * mi},
		{Name: "debug", Memory: mi},
	}, Volumes: map[string]Amount{"cache": {Bytes: 600 * mi}, "tmpfs": {Bytes: mi}}}
	init := func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "i"}} }
	whole := func(p *v1.Pod) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: amounts(map[string]string{"memory": "650Mi"})}
	}
	volumes := func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{
			{Name: "cache", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "tmpfs", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		}
	}
	memory := []Threshold{{Signal: NodeFsAvailable, Value: Value{Percent: 10}}, {Signal: MemoryAvailable, Value: Value{Percent: 10}}}
	levels := map[Signal]Level{
		MemoryAvailable: {Available: 5 * mi, Capacity: 1000 * mi}, NodeFsInodesFree: {Available: 2000, Capacity: 100_000},
		PIDAvailable: {Available: 10, Capacity: 1000}, NodeFsAvailable: {Available: 1},
	}
	for name, c := range map[string]struct {
		pod   *v1.Pod
		what  v1.ResourceName
		due   []Threshold
		blind bool
		want  string
		notes map[string]string
	}{
		"memory: containers above their request, init ones too, ephemeral ones never": {
			pod: pod("p", requesting("memory", "100Mi"), init), what: "memory", due: memory,
			want: "The node was low on resource: memory. Threshold quantity: 104857601, available: 5Mi. " +
				"Container c was using 600Mi, request is 100Mi, has larger consumption of memory. " +
				"Container i was using 99Mi, request is 0, has larger consumption of memory. ",
			notes: map[string]string{"offending_containers": "c,i", "offending_containers_usage": "600Mi,99Mi", "starved_resource": "memory"},
		},
		"memory: a pod with a request of its own": {
			pod: pod("p", requesting("memory", "1Gi"), whole), what: "memory", due: nil,
			want: "The node was low on resource: memory. Pod p was using 700Mi, request is 650Mi, has larger consumption of memory. ",
			notes: map[string]string{
				"offending_containers": "", "offending_containers_usage": "", "offending_pod": "p", "offending_pod_usage": "700Mi", "starved_resource": "memory",
			},
		},
		"storage: root file system and logs": {
			pod: pod("p"), what: "ephemeral-storage", due: []Threshold{{Signal: ImageFsAvailable}, {Signal: NodeFsAvailable, Value: Value{Percent: 10}}},
			want: "The node was low on resource: ephemeral-storage. Threshold quantity: 0, available: 1. " +
				"Container c was using 4Mi, request is 0, has larger consumption of ephemeral-storage. ",
			notes: map[string]string{"offending_containers": "c", "offending_containers_usage": "4Mi", "starved_resource": "ephemeral-storage"},
		},
		"storage: volumes, kubernetes#130439": {
			pod: pod("p", volumes), what: "ephemeral-storage", due: nil,
			want: "The node was low on resource: ephemeral-storage. Container c was using 4Mi, request is 0, has larger consumption of ephemeral-storage. " +
				"Volumes of the pod were using 600Mi. ",
			notes: map[string]string{"offending_containers": "c", "offending_containers_usage": "4Mi", "starved_resource": "ephemeral-storage"},
		},
		"inodes": {
			pod: pod("p"), what: inodes, due: []Threshold{{Signal: NodeFsInodesFree, Value: Value{Percent: 5}}},
			want:  "The node was low on resource: inodes. Threshold quantity: 5000, available: 2k. ",
			notes: map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "inodes"},
		},
		"a pod of which nothing is known": {
			pod: pod("p"), what: pids, due: []Threshold{{Signal: PIDAvailable, Value: Value{Percent: 50}}}, blind: true,
			want: "The node was low on resource: pids. Threshold quantity: 500, available: 10. ", notes: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observation{Levels: levels, Usage: map[types.UID]Usage{}}
			if !c.blind {
				o.Usage["p"] = usage
			}
			message, notes := explain(c.pod, c.what, c.due, o)
			if diff := cmp.Diff(c.want, message); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.notes, notes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOverLimit(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	sidecarOf := func(restart *v1.ContainerRestartPolicy) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{
				Name: "s", RestartPolicy: restart, Resources: v1.ResourceRequirements{Limits: amounts(map[string]string{"ephemeral-storage": "1Mi"})},
			}}
		}
	}
	volume := func(n int64) Usage { return Usage{Volumes: map[string]Amount{"v": {Bytes: n}}} }
	container := func(name string, rootfs, logs int64) Usage {
		return Usage{Containers: []ContainerUsage{{Name: name, Rootfs: Amount{Bytes: rootfs}, Logs: Amount{Bytes: logs}}}}
	}
	for name, c := range map[string]struct {
		pod     *v1.Pod
		usage   Usage
		layout  Layout
		limit   string
		message string
	}{
		"a volume at its limit":        {pod: pod("p", emptyDir("v", "1Mi", "")), usage: volume(mi)},
		"a volume above it":            {pod: pod("p", emptyDir("v", "1Mi", "")), usage: volume(mi + 1), limit: volumeLimit, message: `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `},
		"a volume in memory above it":  {pod: pod("p", emptyDir("v", "1Mi", v1.StorageMediumMemory)), usage: volume(mi + 1), limit: volumeLimit, message: `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `},
		"a volume without limit":       {pod: pod("p", emptyDir("v", "", "")), usage: volume(1 << 40)},
		"a limit of zero is none":      {pod: pod("p", emptyDir("v", "0", "")), usage: volume(1 << 40)},
		"the pod's sum of limits":      {pod: pod("p", limited("ephemeral-storage", "2Mi")), usage: Usage{Storage: 2*mi + 1}, limit: podLimit, message: "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
		"its limit is told as written": {pod: pod("p", limited("ephemeral-storage", "2M")), usage: Usage{Storage: 2*mi + 1}, limit: podLimit, message: "Pod ephemeral local storage usage exceeds the total limit of containers 2M. "},
		"the pod at its limit":         {pod: pod("p", limited("ephemeral-storage", "2Mi")), usage: Usage{Storage: 2 * mi}},
		"a pod limited by a sidecar":   {pod: pod("p", sidecarOf(&always)), usage: Usage{Storage: mi + 1}, limit: podLimit, message: "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "},
		"a pod without limit":          {pod: pod("p"), usage: Usage{Storage: 1 << 40}},
		"a container":                  {pod: pod("p", limited("ephemeral-storage", "2Mi")), usage: container("c", mi, mi+1), limit: containerLimit, message: `Container c exceeded its local ephemeral storage limit "2Mi". `},
		"its root files lie elsewhere": {pod: pod("p", limited("ephemeral-storage", "2Mi")), usage: container("c", mi, mi+1), layout: ImagesApart},
		"its root files lie here":      {pod: pod("p", limited("ephemeral-storage", "2Mi")), usage: container("c", mi, mi+1), layout: Split, limit: containerLimit, message: `Container c exceeded its local ephemeral storage limit "2Mi". `},
		"a sidecar":                    {pod: pod("p", sidecarOf(&always)), usage: container("s", mi, 1), limit: containerLimit, message: `Container s exceeded its local ephemeral storage limit "1Mi". `},
		"an init container":            {pod: pod("p", sidecarOf(nil)), usage: container("s", mi, 1)},
		"one that is not in the spec":  {pod: pod("p", limited("ephemeral-storage", "2Mi")), usage: container("debug", 9*mi, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			limit, message := overLimit(c.pod, c.usage, c.layout)
			if limit != c.limit || message != c.message {
				t.Errorf("%q, %q", limit, message)
			}
		})
	}
}
