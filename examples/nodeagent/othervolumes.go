package main

import (
	"errors"
	"slices"
	"strings"
)

// volumesOfOthers says whether volumes are mounted below a kubelet's folder that this agent cannot have mounted.
func volumesOfOthers(root string, h host) func() (bool, error) {
	return func() (bool, error) {
		mounts := h.read("proc/self/mountinfo")
		if mounts == "" {
			return false, errors.New("proc/self/mountinfo cannot be read")
		}
		for line := range strings.Lines(mounts) {
			f := strings.Fields(line)
			if len(f) < 5 {
				continue
			}
			if below, ok := strings.CutPrefix(f[4], strings.TrimSuffix(root, "/")+"/"); ok && ofOthers(below) {
				return true, nil
			}
		}
		return false, nil
	}
}

// ofOthers says that a place below the folder is where the kubelet mounts a volume of a kind that is not known here.
func ofOthers(place string) bool {
	part := strings.Split(place, "/") // pods/<uid>/volumes/<kind>/<name>, or plugins/<kind>/...
	switch {
	case part[0] == "plugins":
		return true
	case part[0] != "pods" || len(part) < 5:
		return false
	case part[2] == "volumeDevices":
		return true
	}
	own := []string{"configmap", "downward-api", "empty-dir", "projected", "secret"}
	return part[2] == "volumes" && !slices.Contains(own, strings.TrimPrefix(part[3], "kubernetes.io~"))
}
