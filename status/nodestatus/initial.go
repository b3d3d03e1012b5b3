package nodestatus

import (
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Registration says what a new node looks like. Name is required; every other field works at zero.
type Registration struct {
	Name     string
	Hostname string // label kubernetes.io/hostname; empty: Name

	Labels        map[string]string // over the kubelet's own; see [CheckLabels]
	Taints        []v1.Taint
	Unschedulable bool
	ProviderID    string

	ExternalCloud  bool // a cloud controller will say more of this node; until then nothing is scheduled to it
	AttachByOthers bool // volumes are attached by a controller: what a kubelet does unless told otherwise
}

// Initial is the node to register: names, labels, taints and annotations. Its status is left to setters.
func Initial(r Registration) (*v1.Node, error) {
	if problems := validation.IsDNS1123Subdomain(r.Name); len(problems) > 0 {
		return nil, fmt.Errorf("node name %q: %s", r.Name, strings.Join(problems, ", "))
	}
	if err := CheckLabels(r.Labels); err != nil {
		return nil, err
	}
	node := &v1.Node{}
	node.Name = r.Name
	hostname := r.Hostname
	if hostname == "" {
		hostname = r.Name
	}
	node.Labels = map[string]string{
		v1.LabelHostname:   hostname,
		v1.LabelOSStable:   goruntime.GOOS,
		v1.LabelArchStable: goruntime.GOARCH,
		labelOS:            goruntime.GOOS,
		labelArch:          goruntime.GOARCH,
	}
	maps.Copy(node.Labels, r.Labels)
	node.Spec.Taints = slices.Clone(r.Taints)
	if r.ExternalCloud {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{
			Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule,
		})
	}
	node.Spec.Unschedulable = r.Unschedulable
	node.Spec.ProviderID = r.ProviderID
	if r.AttachByOthers {
		node.Annotations = map[string]string{annotationAttach: "true"}
	}
	return node, nil
}

// NodeName is the name of a node on a host: the override if there is one, else the host's name, in lower case.
func NodeName(override, hostname string) (string, error) {
	for _, name := range []string{override, hostname} {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			return name, nil
		}
	}
	return "", errors.New("this host has no name: set one, or give --hostname-override")
}

// CheckLabels says which labels a node may not give itself: those in the namespaces of Kubernetes, unless they are meant
// for it, and those that are no labels.
func CheckLabels(labels map[string]string) error {
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if isKubernetes(key) && !isNodes(key) {
			problems = append(problems, fmt.Errorf("node label %q: a node may give itself labels in kubernetes.io and k8s.io only if they "+
				"begin with kubelet.kubernetes.io/ or node.kubernetes.io/ or are one of %s", key, strings.Join(allowedLabels(), ", ")))
		}
		if p := validation.IsQualifiedName(key); len(p) > 0 {
			problems = append(problems, fmt.Errorf("node label %q: %s", key, strings.Join(p, ", ")))
		}
		if p := validation.IsValidLabelValue(labels[key]); len(p) > 0 {
			problems = append(problems, fmt.Errorf("node label %s=%q: %s", key, labels[key], strings.Join(p, ", ")))
		}
	}
	return errors.Join(problems...)
}

// allowedLabels are those of defaultLabels that an administrator may give.
func allowedLabels() []string {
	return slices.DeleteFunc(defaultLabels(), func(l string) bool { return l == v1.LabelWindowsBuild })
}

func isKubernetes(key string) bool { return in(key, "kubernetes.io") || in(key, "k8s.io") }

func isNodes(key string) bool {
	return slices.Contains(allowedLabels(), key) ||
		in(key, v1.LabelNamespaceSuffixKubelet) || in(key, v1.LabelNamespaceSuffixNode)
}

// in says that the key of a label is in a namespace or below it.
func in(key, namespace string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && (prefix == namespace || strings.HasSuffix(prefix, "."+namespace))
}
