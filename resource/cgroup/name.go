package cgroup

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// name is where a cgroup lies below the root: kubepods, then the class, then the pod.
type name []string

const kubepods = "kubepods"

// The classes that have a cgroup of their own; the guaranteed lie beside them.
const (
	burstable  = "burstable"
	bestEffort = "besteffort"
)

// tier is the cgroup in which pods of a class lie.
func tier(class v1.PodQOSClass) name {
	switch class {
	case v1.PodQOSBurstable:
		return name{kubepods, burstable}
	case v1.PodQOSBestEffort:
		return name{kubepods, bestEffort}
	case v1.PodQOSGuaranteed:
	}
	return name{kubepods}
}

func tiers() []name {
	return []name{tier(v1.PodQOSGuaranteed), tier(v1.PodQOSBurstable), tier(v1.PodQOSBestEffort)}
}

func (n name) pod(uid types.UID) name { return append(slices.Clip(n), "pod"+string(uid)) }

// path is the folder of the cgroup below the root. With systemd each part is a slice that has the names of those above in
// its own, joined by hyphens, so that a hyphen in a name becomes an underscore.
func (n name) path(systemd bool) string {
	if !systemd {
		return path.Join(n...)
	}
	var units []string
	for i := range n {
		units = append(units, n[:i+1].slice())
	}
	return path.Join(units...)
}

// slice is the unit's name.
func (n name) slice() string {
	parts := make([]string, len(n))
	for i, p := range n {
		parts[i] = strings.ReplaceAll(p, "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

// podOf is the uid of the pod whose folder lies in a tier; ok is false for any other folder.
func (n name) podOf(folder string, systemd bool) (uid types.UID, ok bool) {
	prefix := "pod"
	if systemd {
		if folder, ok = strings.CutSuffix(folder, ".slice"); !ok {
			return "", false
		}
		prefix = strings.TrimSuffix(n.slice(), ".slice") + "-pod"
	}
	folder, ok = strings.CutPrefix(folder, prefix)
	if systemd {
		folder = strings.ReplaceAll(folder, "_", "-")
	}
	return types.UID(folder), ok && folder != ""
}
