package staticpod

import (
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

const maxAnnotations = 256 << 10 // bytes of all keys and values

var atMetadata = field.NewPath("metadata") //nolint:gochecknoglobals // constant

// validator checks a pod that has its defaults.
type validator struct {
	*report
	pod     *v1.Pod
	spec    *v1.PodSpec
	volumes map[string]*v1.Volume // by name
}

// validate finds what an API server would refuse, and what a pod from a file cannot have.
func validate(pod *v1.Pod, r *report) {
	v := validator{report: r, pod: pod, spec: &pod.Spec, volumes: map[string]*v1.Volume{}}
	v.metadata()
	v.placement()
	v.network()
	v.checkVolumes()
	v.containers()
	v.podResources()
	v.podSecurity()
	checkReferences(&pod.Spec, r)
}

func (v *validator) metadata() {
	m := &v.pod.ObjectMeta
	switch {
	case m.Name == "" && m.GenerateName != "":
		v.add(atMetadata.Child("name"), "is missing; generateName does not work here, a pod from a file needs a fixed name")
	case m.Name == "":
		v.add(atMetadata.Child("name"), "is missing")
	default:
		v.subdomain(atMetadata.Child("name"), m.Name)
	}
	if m.Namespace != "" {
		v.label(atMetadata.Child("namespace"), m.Namespace)
	}
	if m.UID != "" && !validUID(string(m.UID)) {
		v.add(atMetadata.Child("uid"), "%s cannot be used, as it becomes part of paths; use at most 63 letters, digits and '-', or leave it out", quote(m.UID))
	}
	for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
		v.labelKey(atMetadata.Child("labels"), k)
		v.labelValue(atMetadata.Child("labels").Key(short(k)), m.Labels[k])
	}
	at, size := atMetadata.Child("annotations"), 0
	for _, k := range slices.Sorted(maps.Keys(m.Annotations)) {
		v.labelKey(at, strings.ToLower(k))
		size += len(k) + len(m.Annotations[k])
	}
	if size > maxAnnotations {
		v.add(at, "are too large together: %d KiB, at most %d", size>>10, maxAnnotations>>10)
	}
	if _, ok := m.Annotations[podspec.MirrorAnnotation]; ok {
		v.add(at.Key(podspec.MirrorAnnotation), "marks the copy of a static pod in an API server; remove it, a file holds the pod itself")
	}
	v.appArmorAnnotations(at)
}

// short keeps a long key of the manifest out of field paths.
func short(key string) string { return strings.Trim(quote(key), `"`) }

var uidForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// validUID says that a UID may become a name of a directory, a cgroup and a log directory.
func validUID(uid string) bool { return uidForm.MatchString(uid) }

func (v *validator) subdomain(at *field.Path, name string) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		v.add(at, "%s is not a DNS name; use lower case letters, digits, '-' and '.', at most 253 characters", quote(name))
	}
}

func (v *validator) label(at *field.Path, name string) {
	if len(validation.IsDNS1123Label(name)) > 0 {
		v.add(at, "%s is not a DNS label; use lower case letters, digits and '-', at most 63 characters", quote(name))
	}
}

func (v *validator) labelKey(at *field.Path, key string) {
	if len(validation.IsQualifiedName(key)) > 0 {
		v.add(at, "%s is not a key; use letters, digits, '-', '_' and '.', at most 63 characters, with a DNS name and / before it if need be", quote(key))
	}
}

func (v *validator) labelValue(at *field.Path, value string) {
	if len(validation.IsValidLabelValue(value)) > 0 {
		v.add(at, "%s is not a label value; use letters, digits, '-', '_' and '.', at most 63 characters", quote(value))
	}
}

// placement checks what says where and how long the pod runs.
func (v *validator) placement() {
	s, at := v.spec, field.NewPath("spec")
	oneOf(v.report, at.Child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		v.add(at.Child("activeDeadlineSeconds"), "%d is out of range; at least 1", *d)
	}
	if len(s.EphemeralContainers) > 0 {
		v.add(at.Child("ephemeralContainers"), "can only be added to a pod that runs; remove them")
	}
	if len(s.SchedulingGates) > 0 {
		v.add(at.Child("schedulingGates"), "hold back a scheduler, and a pod from a file has its node already; remove them")
	}
	if s.OS != nil {
		oneOf(v.report, at.Child("os", "name"), s.OS.Name, v1.Linux, v1.Windows)
	}
	if s.PriorityClassName != "" {
		v.subdomain(at.Child("priorityClassName"), s.PriorityClassName)
		if s.Priority == nil && !strings.HasPrefix(s.PriorityClassName, "system-") {
			v.warn(at.Child("priorityClassName"), "counts nothing alone, as classes stand in the API server; set priority too")
		}
	}
	if s.RuntimeClassName != nil {
		v.subdomain(at.Child("runtimeClassName"), *s.RuntimeClassName)
	}
	if s.PreemptionPolicy != nil {
		oneOf(v.report, at.Child("preemptionPolicy"), *s.PreemptionPolicy, v1.PreemptLowerPriority, v1.PreemptNever)
	}
	for i, g := range s.ReadinessGates {
		v.labelKey(at.Child("readinessGates").Index(i).Child("conditionType"), string(g.ConditionType))
	}
	for _, k := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		v.labelKey(at.Child("nodeSelector"), k)
		v.labelValue(at.Child("nodeSelector").Key(short(k)), s.NodeSelector[k])
	}
	for i := range s.Tolerations {
		v.toleration(&s.Tolerations[i], at.Child("tolerations").Index(i))
	}
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		v.nodeAffinity(s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			at.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))
	}
}

func (v *validator) toleration(t *v1.Toleration, at *field.Path) {
	if t.Key != "" {
		v.labelKey(at.Child("key"), t.Key)
	}
	if t.Effect != "" {
		oneOf(v.report, at.Child("effect"), t.Effect, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
	}
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		v.add(at.Child("tolerationSeconds"), "only counts with effect NoExecute")
	}
	switch t.Operator {
	case v1.TolerationOpExists:
		if t.Value != "" {
			v.add(at.Child("value"), "must be empty with operator Exists")
		}
	case v1.TolerationOpEqual, "":
		if t.Key == "" {
			v.add(at.Child("operator"), "must be Exists when key is empty")
		}
		v.labelValue(at.Child("value"), t.Value)
	default:
		oneOf(v.report, at.Child("operator"), t.Operator, v1.TolerationOpExists, v1.TolerationOpEqual)
	}
}

// nodeAffinity checks the terms admission compares with the node.
func (v *validator) nodeAffinity(s *v1.NodeSelector, at *field.Path) {
	if s == nil {
		return
	}
	if len(s.NodeSelectorTerms) == 0 {
		v.add(at, "are missing; name at least one")
	}
	for i, term := range s.NodeSelectorTerms {
		for j, e := range term.MatchExpressions {
			at := at.Index(i).Child("matchExpressions").Index(j)
			v.labelKey(at.Child("key"), e.Key)
			v.requirement(e, at)
		}
		for j, e := range term.MatchFields {
			at := at.Index(i).Child("matchFields").Index(j)
			oneOf(v.report, at.Child("key"), e.Key, "metadata.name")
			oneOf(v.report, at.Child("operator"), e.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn)
			if len(e.Values) != 1 {
				v.add(at.Child("values"), "must be exactly one")
			}
			for k, name := range e.Values {
				v.subdomain(at.Child("values").Index(k), name)
			}
		}
	}
}

func (v *validator) requirement(e v1.NodeSelectorRequirement, at *field.Path) {
	switch e.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(e.Values) == 0 {
			v.add(at.Child("values"), "are missing")
		}
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		if len(e.Values) > 0 {
			v.add(at.Child("values"), "must be empty with operator %s", e.Operator)
		}
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(e.Values) != 1 {
			v.add(at.Child("values"), "must be exactly one with operator %s", e.Operator)
		}
	default:
		oneOf(v.report, at.Child("operator"), e.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists,
			v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt)
	}
	for i, value := range e.Values {
		v.labelValue(at.Child("values").Index(i), value)
	}
}

// The C library's limits, which the API keeps.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

func (v *validator) network() {
	s, at := v.spec, field.NewPath("spec")
	if s.Hostname != "" {
		v.label(at.Child("hostname"), s.Hostname)
	}
	if s.Subdomain != "" {
		v.label(at.Child("subdomain"), s.Subdomain)
	}
	if h := s.HostnameOverride; h != nil {
		at := at.Child("hostnameOverride")
		v.subdomain(at, *h)
		if len(*h) > 64 {
			v.add(at, "is too long; at most 64 characters")
		}
		if s.HostNetwork || s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
			v.add(at, "cannot be combined with hostNetwork or setHostnameAsFQDN")
		}
	}
	for i, a := range s.HostAliases {
		at := at.Child("hostAliases").Index(i)
		v.plainIP(at.Child("ip"), a.IP)
		for j, name := range a.Hostnames {
			v.subdomain(at.Child("hostnames").Index(j), name)
		}
	}
	oneOf(v.report, at.Child("dnsPolicy"), s.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	if s.DNSPolicy == v1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		v.add(at.Child("dnsConfig", "nameservers"), "are missing; dnsPolicy None needs at least one")
	}
	if s.DNSConfig != nil {
		v.dns(s.DNSConfig, at.Child("dnsConfig"))
	}
}

func (v *validator) dns(c *v1.PodDNSConfig, at *field.Path) {
	if len(c.Nameservers) > maxNameservers {
		v.add(at.Child("nameservers"), "are too many: %d, at most %d", len(c.Nameservers), maxNameservers)
	}
	for i, ns := range c.Nameservers {
		v.plainIP(at.Child("nameservers").Index(i), ns)
	}
	if len(c.Searches) > maxSearches || len(strings.Join(c.Searches, " ")) > maxSearchLength {
		v.add(at.Child("searches"), "are too many; at most %d domains and %d characters", maxSearches, maxSearchLength)
	}
	for i, d := range c.Searches {
		if d != "." && len(validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(d, "."))) > 0 {
			v.add(at.Child("searches").Index(i), "%s is not a domain", quote(d))
		}
	}
	for i, o := range c.Options {
		if o.Name == "" {
			v.add(at.Child("options").Index(i).Child("name"), "is missing")
		}
	}
}

func (v *validator) ip(at *field.Path, text string) {
	if a, err := netip.ParseAddr(text); err != nil || a.Zone() != "" {
		v.add(at, "%s is not an IP address", quote(text))
	}
}

// plainIP checks an address that a pod's processes read: not all of them know one of version 4 in the clothes of version 6.
func (v *validator) plainIP(at *field.Path, text string) {
	v.ip(at, text)
	if a, err := netip.ParseAddr(text); err == nil && a.Is4In6() {
		v.add(at, "%s is an IPv4 address written as IPv6; use %s", quote(text), a.Unmap())
	}
}
