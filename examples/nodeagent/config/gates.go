package config

import (
	_ "embed"
	"slices"
	"strings"
)

// knownGates are the feature gates of Kubernetes 1.37, one a line: a plus before those that are on by default, a minus before the
// others.
//
//go:embed gates.txt
var knownGates string

// oddGates are the feature gates that ask for something else than Kubernetes 1.37 does by itself.
func oddGates(gates map[string]bool) (out []Field) {
	known := strings.Fields(knownGates)
	for name, on := range gates {
		path, sign := "featureGates."+name, "-"
		if on {
			sign = "+"
		}
		switch {
		case slices.Contains(known, sign+name):
		case slices.Contains(known, "+"+name):
			out = append(out, Field{path, "it is always on, as Kubernetes 1.37 has it by default"})
		case slices.Contains(known, "-"+name):
			out = append(out, Field{path, "it is always off, as Kubernetes 1.37 has it by default"})
		default:
			out = append(out, Field{path, "Kubernetes 1.37 has no such feature gate"})
		}
	}
	return out
}
