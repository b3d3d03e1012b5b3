package eviction

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// What the metric calls limits of local storage.
const (
	volumeLimit    = "emptydirfs.limit"
	podLimit       = "ephemeralpodfs.limit"
	containerLimit = "ephemeralcontainerfs.limit"
)

// overLimit says which limit of local storage a pod exceeds, of a volume, of all of it, or of a container, and in what words.
// An empty limit is none.
func overLimit(p *v1.Pod, u Usage, l Layout) (limit, message string) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		if used := u.Volumes[v.Name].Bytes; used > v.EmptyDir.SizeLimit.Value() {
			return volumeLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	if most, ok := total(p, v1.ResourceEphemeralStorage, limits); ok && u.Storage > most.Value() {
		return podLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", &most)
	}
	for _, c := range u.Containers {
		spec := containerOf(p, c.Name)
		if spec == nil || isInit(p, spec) && !podspec.Sidecar(spec) {
			continue
		}
		used := c.Logs.Bytes
		if l != ImagesApart {
			used += c.Rootfs.Bytes
		}
		if q := spec.Resources.Limits.StorageEphemeral(); !q.IsZero() && used > q.Value() {
			return containerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, q.String())
		}
	}
	return "", ""
}

func isInit(p *v1.Pod, c *v1.Container) bool {
	for i := range p.Spec.InitContainers {
		if c == &p.Spec.InitContainers[i] {
			return true
		}
	}
	return false
}
