package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// Rank orders pods by who goes first when a signal runs short, by the layout and usage observed. Those that may not be ended
// are among them. Pods that nothing tells apart keep their order. The argument is left as it is.
//
// For memory and disks, who uses more than it requests goes before who does not; inside that lower priority before higher;
// then who is further above its request. For threads priority and their number decide. QoS classes play no part of their own.
func Rank(s Signal, pods []*v1.Pod, o Observation) []*v1.Pod {
	ranks := make([]rank, len(pods))
	for i, p := range pods {
		ranks[i] = rankOf(s, p, o)
	}
	slices.SortStableFunc(ranks, rank.compare)
	out := make([]*v1.Pod, len(pods))
	for i, r := range ranks {
		out[i] = r.pod
	}
	return out
}

// rank is what decides of one pod.
type rank struct {
	pod      *v1.Pod
	known    bool // there are figures of it
	above    bool // it uses more than it requests
	priority int32
	excess   int64
}

func (a rank) compare(b rank) int {
	return cmp.Or(
		first(!a.known, !b.known), first(a.above, b.above),
		cmp.Compare(a.priority, b.priority), cmp.Compare(b.excess, a.excess),
	)
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func rankOf(s Signal, p *v1.Pod, o Observation) rank {
	r := rank{pod: p, priority: podspec.Priority(p)}
	u, known := o.Usage[p.UID]
	k, _ := s.kind()
	if k.resource == pids {
		r.excess = u.Processes
		if !known { // without the key before it, the last one decides for pods nobody knows
			r.excess = unknownProcesses
		}
		r.known = true
		return r
	}
	r.known = known
	if !known {
		return r
	}
	switch k.resource {
	case v1.ResourceMemory:
		request := request(p, v1.ResourceMemory)
		r.above, r.excess = u.Memory > request, u.Memory-request
	case v1.ResourceEphemeralStorage:
		used, request := diskOf(p, u, o.Layout, k.place).Bytes, request(p, v1.ResourceEphemeralStorage)
		r.above, r.excess = used > request, used-request
	case inodes: // nobody requests inodes; bytes are taken from them for the sake of the order kubelets have
		used := diskOf(p, u, o.Layout, k.place).Inodes
		r.above, r.excess = used > 0, used-request(p, v1.ResourceEphemeralStorage)
	default:
	}
	return r
}

const unknownProcesses = 1 << 62

// diskOf is what a pod uses of the disk that a signal is about.
func diskOf(p *v1.Pod, u Usage, l Layout, at place) Amount {
	rootfs, other := Amount{}, volumesOf(p, u) // other: logs and volumes
	for _, c := range u.Containers {
		rootfs, other = rootfs.plus(c.Rootfs), other.plus(c.Logs)
	}
	switch {
	case l == ImagesApart && at == nodeFs:
		return other
	case l == ImagesApart:
		return rootfs
	case l == Split && at == imageFs:
		return Amount{} // pods write nothing where only images lie
	}
	return rootfs.plus(other)
}

// volumesOf is what the volumes of a pod use of the node's disk.
func volumesOf(p *v1.Pod, u Usage) (all Amount) {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; onDisk(v) {
			all = all.plus(u.Volumes[v.Name])
		}
	}
	return all
}

// onDisk says that a volume takes up room on the node's disk.
func onDisk(v *v1.Volume) bool {
	return v.HostPath != nil || v.GitRepo != nil || v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}
