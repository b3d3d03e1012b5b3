package staticpod

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

func (v *validator) containers() {
	at := field.NewPath("spec")
	if len(v.spec.Containers) == 0 {
		v.add(at.Child("containers"), "are missing; a pod has at least one")
	}
	first := map[string]*field.Path{}
	// Regular ones first, so that the second of two equal names is the init container.
	each := func(list []v1.Container, field string, regular bool) {
		for i := range list {
			c, at := &list[i], at.Child(field).Index(i)
			v.container(c, at)
			if prev := first[c.Name]; prev != nil && c.Name != "" {
				v.add(at.Child("name"), "%s is the name of %s too; names are unique in a pod", quote(c.Name), prev)
			} else {
				first[c.Name] = at
			}
			v.running(c, at, regular)
		}
	}
	each(v.spec.Containers, "containers", true)
	each(v.spec.InitContainers, "initContainers", false)
	v.hostPorts()
}

func (v *validator) container(c *v1.Container, at *field.Path) {
	if c.Name == "" {
		v.add(at.Child("name"), "is missing")
	} else {
		v.label(at.Child("name"), c.Name)
	}
	switch {
	case c.Image == "":
		v.add(at.Child("image"), "is missing")
	case c.Image != strings.TrimSpace(c.Image):
		v.add(at.Child("image"), "%s has blanks around it; remove them", quote(c.Image))
	}
	oneOf(v.report, at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(v.report, at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	v.ports(c.Ports, at.Child("ports"))
	for i := range c.Env {
		v.env(&c.Env[i], at.Child("env").Index(i))
	}
	for i, e := range c.EnvFrom {
		at := at.Child("envFrom").Index(i)
		if e.Prefix != "" && len(validation.IsRelaxedEnvVarName(e.Prefix)) > 0 {
			v.add(at.Child("prefix"), "%s cannot begin the name of a variable; use printable ASCII without '='", quote(e.Prefix))
		}
		if (e.ConfigMapRef == nil) == (e.SecretRef == nil) {
			v.add(at, "must have exactly one of configMapRef and secretRef")
		}
	}
	v.mounts(c, at.Child("volumeMounts"))
	for i := range c.VolumeDevices {
		v.add(at.Child("volumeDevices").Index(i), "needs a volume from a claim, which a pod from a file cannot have; mount the device by hostPath")
	}
	v.resources(&c.Resources, at.Child("resources"), v.containerResource)
	for i, claim := range c.Resources.Claims {
		v.add(at.Child("resources", "claims").Index(i), "%s is claimed through the API server, which a pod from a file cannot; remove it", quote(claim.Name))
	}
	v.resizePolicy(c, at.Child("resizePolicy"))
	v.security(c.SecurityContext, at.Child("securityContext"))
}

// running checks what says how a container is watched, stopped and started again.
func (v *validator) running(c *v1.Container, at *field.Path, regular bool) {
	v.restarts(c, at)
	if !regular && !podspec.Sidecar(c) {
		refuse := func(field string, set bool) {
			if set {
				v.add(at.Child(field), "does not work for an init container that runs to its end; give it restartPolicy Always, or remove this")
			}
		}
		refuse("lifecycle", c.Lifecycle != nil)
		refuse("livenessProbe", c.LivenessProbe != nil)
		refuse("readinessProbe", c.ReadinessProbe != nil)
		refuse("startupProbe", c.StartupProbe != nil)
		for i, p := range c.ResizePolicy {
			refuse(fmt.Sprintf("resizePolicy[%d].restartPolicy", i), p.RestartPolicy == v1.RestartContainer)
		}
		return
	}
	if v.spec.HostNetwork && regular {
		for i, p := range c.Ports {
			if p.HostPort != 0 && p.HostPort != p.ContainerPort {
				v.add(at.Child("ports").Index(i).Child("hostPort"), "must be equal to containerPort with hostNetwork")
			}
		}
	}
	v.probe(c.LivenessProbe, at.Child("livenessProbe"), true)
	v.probe(c.StartupProbe, at.Child("startupProbe"), true)
	v.probe(c.ReadinessProbe, at.Child("readinessProbe"), false)
	if c.Lifecycle != nil {
		v.lifecycle(c.Lifecycle, at.Child("lifecycle"))
	}
}

func (v *validator) restarts(c *v1.Container, at *field.Path) {
	rules := at.Child("restartPolicyRules")
	switch {
	case c.RestartPolicy != nil:
		oneOf(v.report, at.Child("restartPolicy"), *c.RestartPolicy, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	case len(c.RestartPolicyRules) > 0:
		v.add(rules, "only count beside a restartPolicy of the container; set one")
	}
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		v.add(rules, "are too many: %d, at most %d", n, maxRestartRules)
	}
	for i, rule := range c.RestartPolicyRules {
		at := rules.Index(i)
		oneOf(v.report, at.Child("action"), rule.Action, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			v.add(at.Child("exitCodes"), "are missing")
			continue
		}
		oneOf(v.report, at.Child("exitCodes", "operator"), rule.ExitCodes.Operator, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > maxExitCodes {
			v.add(at.Child("exitCodes", "values"), "are too many: %d, at most %d", n, maxExitCodes)
		}
	}
}

func (v *validator) ports(ports []v1.ContainerPort, at *field.Path) {
	names := map[string]bool{}
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != "" {
			v.portName(at.Child("name"), p.Name)
			if names[p.Name] {
				v.add(at.Child("name"), "%s is the name of another port of this container too", quote(p.Name))
			}
			names[p.Name] = true
		}
		v.portNumber(at.Child("containerPort"), p.ContainerPort)
		if p.HostPort != 0 {
			v.portNumber(at.Child("hostPort"), p.HostPort)
		}
		if p.HostIP != "" {
			v.ip(at.Child("hostIP"), p.HostIP)
		}
		oneOf(v.report, at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
}

func (v *validator) portNumber(at *field.Path, n int32) {
	if n < 1 || n > 65535 {
		v.add(at, "%d is not a port; use 1 to 65535", n)
	}
}

func (v *validator) portName(at *field.Path, name string) {
	if len(validation.IsValidPortName(name)) > 0 {
		v.add(at, "%s is not the name of a port; use lower case letters, digits and single '-', a letter among them, at most 15 characters", quote(name))
	}
}

// hostPorts finds ports of the host that two containers of the pod want. Init containers that run to their
// end come one after the other and only compete with themselves.
func (v *validator) hostPorts() {
	type hostPort struct {
		protocol v1.Protocol
		ip       string
		port     int32
	}
	check := func(taken map[hostPort]bool, c *v1.Container, at *field.Path) {
		for i, p := range c.Ports {
			key := hostPort{p.Protocol, p.HostIP, p.HostPort}
			if p.HostPort != 0 && taken[key] {
				v.add(at.Child("ports").Index(i).Child("hostPort"), "%d is taken by another port of this pod", p.HostPort)
			}
			taken[key] = true
		}
	}
	together := map[hostPort]bool{}
	for i := range v.spec.Containers {
		check(together, &v.spec.Containers[i], field.NewPath("spec", "containers").Index(i))
	}
	for i := range v.spec.InitContainers {
		check(map[hostPort]bool{}, &v.spec.InitContainers[i], field.NewPath("spec", "initContainers").Index(i))
	}
}

// Fields of the pod that a variable can have as its value.
var envFields = []string{ //nolint:gochecknoglobals // constant
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

func (v *validator) env(e *v1.EnvVar, at *field.Path) {
	switch {
	case e.Name == "":
		v.add(at.Child("name"), "is missing")
	case len(validation.IsRelaxedEnvVarName(e.Name)) > 0:
		v.add(at.Child("name"), "%s is not the name of a variable; use printable ASCII without '='", quote(e.Name))
	}
	from := e.ValueFrom
	if from == nil {
		return
	}
	at = at.Child("valueFrom")
	if e.Value != "" {
		v.add(at, "cannot stand beside value; remove one")
	}
	if n := count(from.FieldRef != nil, from.ResourceFieldRef != nil, from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil, from.FileKeyRef != nil); n != 1 {
		v.add(at, "must have exactly one of fieldRef, resourceFieldRef and fileKeyRef, but has %d", n)
	}
	if from.FieldRef != nil {
		v.fieldRef(from.FieldRef, at.Child("fieldRef"), envFields)
	}
	if from.ResourceFieldRef != nil {
		v.resourceFieldRef(from.ResourceFieldRef, at.Child("resourceFieldRef"), false)
	}
	if f := from.FileKeyRef; f != nil {
		v.fileKeyRef(f, at.Child("fileKeyRef"))
	}
}

func (v *validator) fileKeyRef(f *v1.FileKeySelector, at *field.Path) {
	if f.Key == "" || len(validation.IsRelaxedEnvVarName(f.Key)) > 0 {
		v.add(at.Child("key"), "%s is not the name of a variable", quote(f.Key))
	}
	if f.Path == "" {
		v.add(at.Child("path"), "is missing")
	}
	v.noBacksteps(at.Child("path"), f.Path)
	if vol := v.volumes[f.VolumeName]; vol == nil || vol.EmptyDir == nil {
		v.add(at.Child("volumeName"), "%s is not an emptyDir volume of this pod", quote(f.VolumeName))
	}
}

// fieldRef checks a field of the pod; labels and annotations may be asked for by key.
func (v *validator) fieldRef(f *v1.ObjectFieldSelector, at *field.Path, allowed []string) {
	if f.APIVersion != "v1" {
		v.add(at.Child("apiVersion"), "%s is not known; use v1", quote(f.APIVersion))
	}
	at = at.Child("fieldPath")
	if path, key, ok := strings.Cut(f.FieldPath, "['"); ok && (path == "metadata.labels" || path == "metadata.annotations") {
		key, ok := strings.CutSuffix(key, "']")
		if path == "metadata.annotations" {
			key = strings.ToLower(key) // they may have capitals where labels have a domain
		}
		if !ok || len(validation.IsQualifiedName(key)) > 0 {
			v.add(at, "%s is not like %s['key']", quote(f.FieldPath), path)
		}
		return
	}
	if !slices.Contains(allowed, f.FieldPath) {
		v.add(at, "%s is not a field that can be used here; use one of %s", quote(f.FieldPath), strings.Join(allowed, ", "))
	}
}

// count says how many are true.
func count(set ...bool) (n int) {
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}
