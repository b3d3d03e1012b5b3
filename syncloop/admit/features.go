package admit

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// Features refuses pods that need a feature which this node does not declare in its status.
type Features struct {
	Declared []string // what the node declares
}

// level is the API version this agent speaks: a feature that every node of it has need not be declared.
const level = "1.37"

// Admit refuses with PodFeatureUnsupported.
func (f Features) Admit(_ context.Context, pod *v1.Pod, _ []*v1.Pod) error {
	info, own := &types.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, version.MustParseGeneric(level)
	var missing []string
	for _, feature := range features.AllFeatures {
		until := feature.MaxVersion()
		if (until == nil || !own.GreaterThan(until)) && feature.InferForScheduling(info) && !slices.Contains(f.Declared, feature.Name()) {
			missing = append(missing, feature.Name())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return refuse("PodFeatureUnsupported", "Pod requires node features that are not available: %s", strings.Join(missing, ", "))
}
