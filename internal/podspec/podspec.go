// Package podspec has rules of a pod's spec that several parts need: which containers it has, what they ask for together,
// its QoS class, which API objects are static pods, and the expansion of $(NAME).
package podspec

import (
	"math"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Annotations by which a node knows where a pod came from.
const (
	SourceAnnotation = "kubernetes.io/config.source"
	MirrorAnnotation = "kubernetes.io/config.mirror"
	HashAnnotation   = "kubernetes.io/config.hash"
	SeenAnnotation   = "kubernetes.io/config.seen"
)

// Static says that a pod comes from a file or an address, not from an API server.
func Static(pod *v1.Pod) bool {
	source, ok := pod.Annotations[SourceAnnotation]
	return ok && source != "api"
}

// Sidecar says that an init container runs beside the others, started before them.
func Sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Containers are those of every kind.
func Containers(pod *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range pod.Spec.InitContainers {
		out = append(out, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

// Seconds is a time that a spec tells in seconds. Whoever writes the longest there is means as long as it takes: what is more
// than 68 years is that, for a longer one cannot be reckoned with.
func Seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt32)) * time.Second
}

// FullName names a pod among those of one node at one time: name_namespace.
func FullName(pod *v1.Pod) string { return pod.Name + "_" + pod.Namespace }

// Expand replaces $(NAME) by what lookup knows of NAME and $$ by one dollar. What it does not know stays as it is.
func Expand(s string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i:], ')')
			if end < 0 { // no name, and what follows is read on
				b.WriteByte('$')
				continue
			}
			ref := s[i : i+end+1]
			if v, ok := lookup(ref[2:end]); ok {
				b.WriteString(v)
			} else {
				b.WriteString(ref)
			}
			i += end
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}
