package eviction

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func names(pods []*v1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestRank(t *testing.T) {
	memory := func(n int64) Usage { return Usage{Memory: n * mi} }
	rootfs := func(n int64) Usage {
		return Usage{Containers: []ContainerUsage{{Name: "c", Rootfs: Amount{n * mi, n}}}}
	}
	logs := func(n int64) Usage { return Usage{Containers: []ContainerUsage{{Name: "c", Logs: Amount{n * mi, n}}}} }
	vol := func(n int64) Usage { return Usage{Volumes: map[string]Amount{"v": {n * mi, n}}} }
	disks := []*v1.Pod{pod("rootfs"), pod("logs"), pod("vol", emptyDir("v", "", "")), pod("tmpfs", emptyDir("v", "", v1.StorageMediumMemory))}
	used := map[types.UID]Usage{"rootfs": rootfs(3), "logs": logs(2), "vol": vol(1), "tmpfs": vol(9)}
	always := v1.ContainerRestartPolicyAlways
	for name, c := range map[string]struct {
		signal Signal
		pods   []*v1.Pod
		usage  map[types.UID]Usage
		layout Layout
		want   string
	}{
		"above request, then priority, then amount": {
			MemoryAvailable,
			[]*v1.Pod{
				pod("D", requesting("memory", "1Gi"), limited("memory", "1Gi")),
				pod("C", prio(1000), requesting("memory", "100Mi")), pod("A"), pod("B", requesting("memory", "100Mi")),
			},
			map[types.UID]Usage{"A": memory(50), "B": memory(900), "C": memory(2048), "D": memory(900)},
			OneDisk, "B A C D",
		},
		"nothing known goes first whatever its priority": {
			AllocatableMemoryAvailable, []*v1.Pod{pod("a"), pod("b", prio(1000))}, map[types.UID]Usage{"a": memory(50)}, OneDisk, "b a",
		},
		"two of whom nothing is known: by priority": {MemoryAvailable, []*v1.Pod{pod("a", prio(9)), pod("b")}, nil, OneDisk, "b a"},
		"using just what is requested is not above": {
			MemoryAvailable,
			[]*v1.Pod{pod("a", requesting("memory", "5Mi")), pod("b", prio(7), requesting("memory", "4Mi"))},
			map[types.UID]Usage{"a": memory(5), "b": memory(5)},
			OneDisk, "b a",
		},
		"sizes of the pod as a whole count": {
			MemoryAvailable,
			[]*v1.Pod{pod("a", requesting("memory", "5Mi"), func(p *v1.Pod) {
				p.Spec.Resources = &v1.ResourceRequirements{Requests: amounts(map[string]string{"memory": "10Mi"})}
			}), pod("b", requesting("memory", "5Mi"))},
			map[types.UID]Usage{"a": memory(9), "b": memory(6)},
			OneDisk, "b a",
		},
		"sidecars are part of the request": {
			MemoryAvailable,
			[]*v1.Pod{pod("a", requesting("memory", "5Mi"), func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: &always, Resources: p.Spec.Containers[0].Resources}, {Name: "i"}}
			}), pod("b", requesting("memory", "5Mi"))},
			map[types.UID]Usage{"a": memory(9), "b": memory(6)},
			OneDisk, "b a",
		},
		"threads: priority before number, no request": {
			PIDAvailable,
			[]*v1.Pod{pod("a", prio(1)), pod("b"), pod("c"), pod("d", prio(1))},
			map[types.UID]Usage{"a": {Processes: 900}, "b": {Processes: 1}, "c": {Processes: 2}},
			OneDisk, "c b d a",
		},
		"one disk counts all, in bytes":          {NodeFsAvailable, disks, used, OneDisk, "rootfs logs vol tmpfs"},
		"one disk counts all, in inodes":         {ImageFsInodesFree, disks, used, OneDisk, "rootfs logs vol tmpfs"},
		"apart: the node's has logs and volumes": {NodeFsAvailable, disks, used, ImagesApart, "logs vol rootfs tmpfs"},
		"apart: that of images has root files":   {ImageFsAvailable, disks, used, ImagesApart, "rootfs logs vol tmpfs"},
		"apart: containers write there too":      {ContainerFsAvailable, disks, used, ImagesApart, "rootfs logs vol tmpfs"},
		"split: nobody uses that of images":      {ImageFsAvailable, disks, used, Split, "rootfs logs vol tmpfs"},
		"split: the node's has it all":           {NodeFsAvailable, disks, used, Split, "rootfs logs vol tmpfs"},
		"request for storage": {
			NodeFsAvailable,
			[]*v1.Pod{pod("a"), pod("b", requesting("ephemeral-storage", "3Mi"))},
			map[types.UID]Usage{"a": rootfs(1), "b": rootfs(3)},
			OneDisk, "a b",
		},
		"inodes are compared after a request for bytes": {
			NodeFsInodesFree,
			[]*v1.Pod{pod("a", requesting("ephemeral-storage", "1k")), pod("b")},
			map[types.UID]Usage{"a": rootfs(900), "b": rootfs(1)},
			OneDisk, "b a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := names(c.pods)
			if got := names(Rank(c.signal, c.pods, Observation{Usage: c.usage, Layout: c.layout})); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if names(c.pods) != before {
				t.Error("the argument was reordered")
			}
		})
	}
}

// before is the reference's text once more: whether a goes before b.
func before(s Signal, a, b *v1.Pod, o Observation) bool {
	ua, knownA := o.Usage[a.UID]
	ub, knownB := o.Usage[b.UID]
	usage := func(p *v1.Pod, u Usage) (used, above int64) {
		ask := func(name v1.ResourceName) int64 {
			q := p.Spec.Containers[0].Resources.Requests[name]
			return q.Value()
		}
		switch {
		case strings.HasSuffix(string(s), "emory.available"):
			return u.Memory - ask("memory"), u.Memory - ask("memory")
		case s == PIDAvailable:
			return 0, u.Processes
		}
		var parts []Amount
		root, logs, volume := u.Containers[0].Rootfs, u.Containers[0].Logs, u.Volumes["v"]
		where, _, _ := strings.Cut(string(s), ".")
		switch fmt.Sprint(o.Layout, where) {
		case "1nodefs":
			parts = []Amount{logs, volume}
		case "1imagefs", "1containerfs":
			parts = []Amount{root}
		case "2imagefs":
		default:
			parts = []Amount{root, logs, volume}
		}
		var sum Amount
		for _, p := range parts {
			sum.Bytes, sum.Inodes = sum.Bytes+p.Bytes, sum.Inodes+p.Inodes
		}
		if strings.HasSuffix(string(s), "inodesFree") {
			return sum.Inodes, sum.Inodes - ask("ephemeral-storage")
		}
		return sum.Bytes - ask("ephemeral-storage"), sum.Bytes - ask("ephemeral-storage")
	}
	exceeds := func() int {
		if s == PIDAvailable {
			return 0
		}
		if !knownA || !knownB {
			return btoi(knownA) - btoi(knownB)
		}
		ea, _ := usage(a, ua)
		eb, _ := usage(b, ub)
		return btoi(eb > 0) - btoi(ea > 0)
	}
	if c := exceeds(); c != 0 {
		return c < 0
	}
	pa, pb := int32(0), int32(0)
	if a.Spec.Priority != nil {
		pa = *a.Spec.Priority
	}
	if b.Spec.Priority != nil {
		pb = *b.Spec.Priority
	}
	if pa != pb {
		return pa < pb
	}
	if !knownA || !knownB {
		return !knownA && knownB
	}
	_, xa := usage(a, ua)
	_, xb := usage(b, ub)
	return xa > xb
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestRankAgreesWithANaiveOne(t *testing.T) {
	signals := []Signal{
		MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable, NodeFsAvailable, NodeFsInodesFree,
		ImageFsAvailable, ImageFsInodesFree, ContainerFsAvailable, ContainerFsInodesFree,
	}
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 2))
		o := Observation{Usage: map[types.UID]Usage{}, Layout: Layout(r.IntN(3))}
		var pods []*v1.Pod
		for i := range 2 + r.IntN(8) {
			p := pod(fmt.Sprint("p", i), emptyDir("v", "", ""))
			if r.IntN(2) == 0 {
				p.Spec.Priority = new(int32(r.IntN(3)))
			}
			if r.IntN(2) == 0 {
				p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
					"memory": *resource.NewQuantity(r.Int64N(4), resource.BinarySI), "ephemeral-storage": *resource.NewQuantity(r.Int64N(6), resource.BinarySI),
				}
			}
			if r.IntN(6) > 0 {
				amount := func() Amount { return Amount{r.Int64N(4), r.Int64N(4)} }
				o.Usage[p.UID] = Usage{
					Memory: r.Int64N(4), Processes: r.Int64N(4), Volumes: map[string]Amount{"v": amount()},
					Containers: []ContainerUsage{{Name: "c", Rootfs: amount(), Logs: amount()}},
				}
			}
			pods = append(pods, p)
		}
		s := signals[r.IntN(len(signals))]
		naive := append([]*v1.Pod(nil), pods...)
		for i := range naive { // insertion, stable
			for j := i; j > 0 && before(s, naive[j], naive[j-1], o); j-- {
				naive[j], naive[j-1] = naive[j-1], naive[j]
			}
		}
		if got := names(Rank(s, pods, o)); got != names(naive) {
			t.Fatalf("seed %d, %s: %s, naive %s", seed, s, got, names(naive))
		}
	}
}

func BenchmarkRank500(b *testing.B) {
	o := Observation{Usage: map[types.UID]Usage{}}
	var pods []*v1.Pod
	for i := range 500 {
		p := pod(fmt.Sprint("p", i), requesting("memory", "1Gi"), prio(int32(i%3)))
		pods = append(pods, p)
		o.Usage[p.UID] = Usage{Memory: int64(i*7919%500) << 22}
	}
	for b.Loop() {
		Rank(MemoryAvailable, pods, o)
	}
}
