package staticpod

import (
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// everything is a good pod in which each field is set.
func everything(t testing.TB) *v1.Pod {
	t.Helper()
	b, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return decodeGood(t, string(b))
}

func TestEverythingIsGood(t *testing.T) {
	p := everything(t)
	r := &report{}
	if validate(p, r); r.err() != nil {
		t.Error(r.err())
	}
}

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

// rule breaks one thing of a good pod; the problem must stand at that field.
type rule struct {
	name  string
	field string
	edit  func(p *v1.Pod)
}

func checkRules(t *testing.T, rules []rule) {
	t.Helper()
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			p := everything(t)
			rule.edit(p)
			r := &report{}
			validate(p, r)
			if len(r.found) == 0 {
				t.Fatal("was accepted")
			}
			for _, found := range r.found {
				if !strings.HasPrefix(found.Field, rule.field) {
					t.Errorf("%s, want the field %s", found, rule.field)
				}
				if len(found.Text) < 10 || strings.Contains(found.Text, "%!") {
					t.Errorf("text %q", found.Text)
				}
			}
		})
	}
}

const appArmor = v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

// What kubelet v1.37.2 takes, however odd, is taken here.
func TestOddButGood(t *testing.T) {
	for name, edit := range map[string]func(p *v1.Pod){
		"a pull secret without a name":          func(p *v1.Pod) { p.Spec.ImagePullSecrets = make([]v1.LocalObjectReference, 1) },
		"an AppArmor annotation like the field": func(p *v1.Pod) { p.Annotations[appArmor+"c"] = "unconfined" },
		"an AppArmor annotation like the pod's": func(p *v1.Pod) { p.Annotations[appArmor+"side"] = "localhost/abc" },
		"an init container's host port on the host's network": func(p *v1.Pod) {
			p.Spec.HostNetwork, p.Spec.Containers[0].Ports = true, nil
			p.Spec.InitContainers[1].Ports[0].HostPort = 8
		},
		"an annotation with capitals in its domain": func(p *v1.Pod) {
			p.Spec.Containers[0].Env[3].ValueFrom.FieldRef.FieldPath = "metadata.annotations['Example.org/a']"
		},
		"a host address of version 4 as of version 6": func(p *v1.Pod) { p.Spec.Containers[0].Ports[0].HostIP = "::ffff:1.2.3.4" },
	} {
		t.Run(name, func(t *testing.T) {
			p := everything(t)
			edit(p)
			r := &report{}
			if validate(p, r); r.err() != nil {
				t.Error(r.err())
			}
		})
	}
}

func TestRulesOfThePod(t *testing.T) {
	checkRules(t, []rule{
		{"name in capitals", "metadata.name", func(p *v1.Pod) { p.Name = "Web" }},
		{"namespace with dots", "metadata.namespace", func(p *v1.Pod) { p.Namespace = "a.b" }},
		{"uid with dots", "metadata.uid", func(p *v1.Pod) { p.UID = ".." }},
		{"uid like an option", "metadata.uid", func(p *v1.Pod) { p.UID = "-rf" }},
		{"uid with the separator of log directories", "metadata.uid", func(p *v1.Pod) { p.UID = "a_b" }},
		{"uid longer than a label", "metadata.uid", func(p *v1.Pod) { p.UID = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" }},
		{"label key", "metadata.labels", func(p *v1.Pod) { p.Labels["a b"] = "c" }},
		{"label value", "metadata.labels[a]", func(p *v1.Pod) { p.Labels["a"] = "b c" }},
		{"annotation key", "metadata.annotations", func(p *v1.Pod) { p.Annotations["/"] = "" }},
		{"AppArmor annotation of no container", "metadata.annotations", func(p *v1.Pod) { p.Annotations[appArmor+"nobody"] = "unconfined" }},
		{"AppArmor annotation of no profile", "metadata.annotations", func(p *v1.Pod) { p.Annotations[appArmor+"c"] = "default" }},
		{"AppArmor annotation beside another field", "metadata.annotations", func(p *v1.Pod) { p.Annotations[appArmor+"c"] = "runtime/default" }},
		{"AppArmor annotation beside another field of the pod", "metadata.annotations", func(p *v1.Pod) { p.Annotations[appArmor+"side"] = "unconfined" }},
		{"AppArmor annotation of another file", "metadata.annotations", func(p *v1.Pod) { p.Annotations[appArmor+"side"] = "localhost/other" }},
		{"annotations too large", "metadata.annotations", func(p *v1.Pod) { p.Annotations["a"] = strings.Repeat("x", 300<<10) }},
		{"copy of a static pod", "metadata.annotations[kubernetes.io/config.mirror]", func(p *v1.Pod) { p.Annotations["kubernetes.io/config.mirror"] = "x" }},
		{"restart policy", "spec.restartPolicy", func(p *v1.Pod) { p.Spec.RestartPolicy = "Sometimes" }},
		{"deadline of nothing", "spec.activeDeadlineSeconds", func(p *v1.Pod) { *p.Spec.ActiveDeadlineSeconds = 0 }},
		{"ephemeral containers", "spec.ephemeralContainers", func(p *v1.Pod) { p.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 1) }},
		{"gates", "spec.schedulingGates", func(p *v1.Pod) { p.Spec.SchedulingGates = make([]v1.PodSchedulingGate, 1) }},
		{"operating system", "spec.os.name", func(p *v1.Pod) { p.Spec.OS.Name = "plan9" }},
		{"priority class", "spec.priorityClassName", func(p *v1.Pod) { p.Spec.PriorityClassName = "A" }},
		{"runtime class", "spec.runtimeClassName", func(p *v1.Pod) { *p.Spec.RuntimeClassName = "a/b" }},
		{"preemption policy", "spec.preemptionPolicy", func(p *v1.Pod) { *p.Spec.PreemptionPolicy = "x" }},
		{"readiness gate", "spec.readinessGates[0].conditionType", func(p *v1.Pod) { p.Spec.ReadinessGates[0].ConditionType = "" }},
		{"node selector", "spec.nodeSelector[disk]", func(p *v1.Pod) { p.Spec.NodeSelector["disk"] = "/" }},
		{"toleration operator", "spec.tolerations[0].operator", func(p *v1.Pod) { p.Spec.Tolerations[0].Operator = "Gt" }},
		{"toleration effect", "spec.tolerations[0].effect", func(p *v1.Pod) { p.Spec.Tolerations[0].Effect = "x" }},
		{"toleration of all by value", "spec.tolerations[0].operator", func(p *v1.Pod) { p.Spec.Tolerations[0].Key = "" }},
		{"toleration of existence by value", "spec.tolerations[1].value", func(p *v1.Pod) { p.Spec.Tolerations[1].Value = "x" }},
		{"toleration for seconds of scheduling", "spec.tolerations[1].tolerationSeconds", func(p *v1.Pod) { p.Spec.Tolerations[1].Effect = v1.TaintEffectNoSchedule }},
		{"affinity without terms", "spec.affinity.nodeAffinity", func(p *v1.Pod) { terms(p).NodeSelectorTerms = nil }},
		{"affinity operator", "spec.affinity.nodeAffinity", func(p *v1.Pod) { terms(p).NodeSelectorTerms[0].MatchExpressions[0].Operator = "x" }},
		{"affinity In without values", "spec.affinity.nodeAffinity", func(p *v1.Pod) { terms(p).NodeSelectorTerms[0].MatchExpressions[0].Values = nil }},
		{"affinity Gt of two", "spec.affinity.nodeAffinity", func(p *v1.Pod) { terms(p).NodeSelectorTerms[0].MatchExpressions[1].Values = []string{"1", "2"} }},
		{"affinity Exists with values", "spec.affinity.nodeAffinity", func(p *v1.Pod) { terms(p).NodeSelectorTerms[0].MatchExpressions[2].Values = []string{"1"} }},
		{"affinity to another field", "spec.affinity.nodeAffinity", func(p *v1.Pod) { terms(p).NodeSelectorTerms[0].MatchFields[0].Key = "metadata.uid" }},
		{"affinity to two nodes", "spec.affinity.nodeAffinity", func(p *v1.Pod) { terms(p).NodeSelectorTerms[0].MatchFields[0].Values = []string{"a", "b"} }},
	})
}

func terms(p *v1.Pod) *v1.NodeSelector {
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func TestRulesOfTheNetwork(t *testing.T) {
	checkRules(t, []rule{
		{"hostname with dots", "spec.hostname", func(p *v1.Pod) { p.Spec.Hostname = "a.b" }},
		{"subdomain with dots", "spec.subdomain", func(p *v1.Pod) { p.Spec.Subdomain = "a.b" }},
		{"hostname override with the host's network", "spec.hostnameOverride", func(p *v1.Pod) {
			n := "a"
			p.Spec.HostnameOverride, p.Spec.HostNetwork = &n, true
			p.Spec.Containers[0].Ports = nil
		}},
		{"hostname override too long", "spec.hostnameOverride", func(p *v1.Pod) { n := strings.Repeat("a.", 40) + "a"; p.Spec.HostnameOverride = &n }},
		{"host alias without address", "spec.hostAliases[0].ip", func(p *v1.Pod) { p.Spec.HostAliases[0].IP = "host" }},
		{"host alias of an IPv4 address as IPv6", "spec.hostAliases[0].ip", func(p *v1.Pod) { p.Spec.HostAliases[0].IP = "::ffff:1.2.3.4" }},
		{"name server of an IPv4 address as IPv6", "spec.dnsConfig.nameservers[0]", func(p *v1.Pod) { p.Spec.DNSConfig.Nameservers[0] = "::ffff:1.2.3.4" }},
		{"host alias of no name", "spec.hostAliases[0].hostnames[1]", func(p *v1.Pod) { p.Spec.HostAliases[0].Hostnames[1] = "_" }},
		{"DNS policy", "spec.dnsPolicy", func(p *v1.Pod) { p.Spec.DNSPolicy = "x" }},
		{"DNS None without servers", "spec.dnsConfig.nameservers", func(p *v1.Pod) { p.Spec.DNSConfig = nil }},
		{"name server by name", "spec.dnsConfig.nameservers[0]", func(p *v1.Pod) { p.Spec.DNSConfig.Nameservers[0] = "dns" }},
		{"four name servers", "spec.dnsConfig.nameservers", func(p *v1.Pod) { p.Spec.DNSConfig.Nameservers = []string{"1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"} }},
		{"33 search domains", "spec.dnsConfig.searches", func(p *v1.Pod) { p.Spec.DNSConfig.Searches = strings.Split(strings.Repeat("a ", 33)+"a", " ") }},
		{"search domain", "spec.dnsConfig.searches[0]", func(p *v1.Pod) { p.Spec.DNSConfig.Searches[0] = "a b" }},
		{"DNS option without name", "spec.dnsConfig.options[0].name", func(p *v1.Pod) { p.Spec.DNSConfig.Options[0].Name = "" }},
	})
}

func TestRulesOfContainers(t *testing.T) {
	c := func(edit func(c *v1.Container)) func(*v1.Pod) { return func(p *v1.Pod) { edit(&p.Spec.Containers[0]) } }
	once := func(edit func(c *v1.Container)) func(*v1.Pod) {
		return func(p *v1.Pod) { edit(&p.Spec.InitContainers[1]) }
	}
	const at = "spec.containers[0]."
	checkRules(t, []rule{
		{"none", "spec.containers", func(p *v1.Pod) { p.Spec.Containers = nil; p.Spec.Resources = nil }},
		{"name missing", at + "name", c(func(c *v1.Container) { c.Name = "" })},
		{"name with dots", at + "name", c(func(c *v1.Container) { c.Name = "a.b" })},
		{"name of an init container", "spec.initContainers[1].name", once(func(c *v1.Container) { c.Name = "c" })},
		{"image missing", at + "image", c(func(c *v1.Container) { c.Image = "" })},
		{"image with a newline", at + "image", c(func(c *v1.Container) { c.Image = "a\n" })},
		{"pull policy", at + "imagePullPolicy", c(func(c *v1.Container) { c.ImagePullPolicy = "x" })},
		{"message policy", at + "terminationMessagePolicy", c(func(c *v1.Container) { c.TerminationMessagePolicy = "x" })},
		{"port name", at + "ports[0].name", c(func(c *v1.Container) { c.Ports[0].Name = "80" })},
		{"port name twice", at + "ports[1].name", c(func(c *v1.Container) { c.Ports[1].Name = "http" })},
		{"port missing", at + "ports[0].containerPort", c(func(c *v1.Container) { c.Ports[0].ContainerPort = 0 })},
		{"host port", at + "ports[0].hostPort", c(func(c *v1.Container) { c.Ports[0].HostPort = -1 })},
		{"host address", at + "ports[0].hostIP", c(func(c *v1.Container) { c.Ports[0].HostIP = "x" })},
		{"protocol", at + "ports[0].protocol", c(func(c *v1.Container) { c.Ports[0].Protocol = "tcp" })},
		{"host port twice", at + "ports[2].hostPort", c(func(c *v1.Container) { c.Ports = append(c.Ports, c.Ports[0]); c.Ports[2].Name = "" })},
		{"host network, other host port", at + "ports[0].hostPort", func(p *v1.Pod) { p.Spec.HostNetwork = true }},
		{"variable without name", at + "env[0].name", c(func(c *v1.Container) { c.Env[0].Name = "" })},
		{"variable with =", at + "env[0].name", c(func(c *v1.Container) { c.Env[0].Name = "a=b" })},
		{"value twice", at + "env[1].valueFrom", c(func(c *v1.Container) { c.Env[1].Value = "x" })},
		{"value from nothing", at + "env[1].valueFrom", c(func(c *v1.Container) { c.Env[1].ValueFrom.FieldRef = nil })},
		{"value from an unknown field", at + "env[1].valueFrom.fieldRef.fieldPath", c(func(c *v1.Container) { c.Env[1].ValueFrom.FieldRef.FieldPath = "spec.hostname" })},
		{"value from another version", at + "env[1].valueFrom.fieldRef.apiVersion", c(func(c *v1.Container) { c.Env[1].ValueFrom.FieldRef.APIVersion = "v2" })},
		{"value from half a label", at + "env[3].valueFrom.fieldRef.fieldPath", c(func(c *v1.Container) { c.Env[3].ValueFrom.FieldRef.FieldPath = "metadata.labels['a" })},
		{"value from a label nothing can have", at + "env[3].valueFrom.fieldRef.fieldPath", c(func(c *v1.Container) { c.Env[3].ValueFrom.FieldRef.FieldPath = "metadata.labels['Example.org/a']" })},
		{"value from an unknown amount", at + "env[2].valueFrom.resourceFieldRef.resource", c(func(c *v1.Container) { c.Env[2].ValueFrom.ResourceFieldRef.Resource = "limits.gpu" })},
		{"value in odd units", at + "env[2].valueFrom.resourceFieldRef.divisor", c(func(c *v1.Container) { c.Env[2].ValueFrom.ResourceFieldRef.Divisor = resource.MustParse("2") })},
		{"value from a file elsewhere", at + "env[4].valueFrom.fileKeyRef.volumeName", c(func(c *v1.Container) { c.Env[4].ValueFrom.FileKeyRef.VolumeName = "host" })},
		{"value from a file above", at + "env[4].valueFrom.fileKeyRef.path", c(func(c *v1.Container) { c.Env[4].ValueFrom.FileKeyRef.Path = "../a" })},
		{"value from a file without key", at + "env[4].valueFrom.fileKeyRef.key", c(func(c *v1.Container) { c.Env[4].ValueFrom.FileKeyRef.Key = "" })},
		{"variables from nothing", at + "envFrom[0]", c(func(c *v1.Container) { c.EnvFrom = make([]v1.EnvFromSource, 1) })},
		{"a block device", at + "volumeDevices[0]", c(func(c *v1.Container) { c.VolumeDevices = []v1.VolumeDevice{{Name: "scratch", DevicePath: "/dev/x"}} })},
		{"resize policy", at + "resizePolicy[0].restartPolicy", c(func(c *v1.Container) { c.ResizePolicy[0].RestartPolicy = "x" })},
		{"resize policy of storage", at + "resizePolicy[0].resourceName", c(func(c *v1.Container) { c.ResizePolicy[0].ResourceName = "ephemeral-storage" })},
		{"resize policy twice", at + "resizePolicy[1].resourceName", c(func(c *v1.Container) { c.ResizePolicy[1].ResourceName = "cpu" })},
		{"resize that restarts an init container", "spec.initContainers[1].resizePolicy[0].restartPolicy", once(func(c *v1.Container) { c.ResizePolicy[0].RestartPolicy = v1.RestartContainer })},
		{"a claimed device", at + "resources.claims[0]", c(func(c *v1.Container) { c.Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}} })},
		{"resize that restarts what never restarts", at + "resizePolicy[1].restartPolicy", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }},
		{"container restart policy", at + "restartPolicy", c(func(c *v1.Container) { *c.RestartPolicy = "x" })},
		{"rules without policy", at + "restartPolicyRules", c(func(c *v1.Container) { c.RestartPolicy = nil })},
		{"rule action", at + "restartPolicyRules[0].action", c(func(c *v1.Container) { c.RestartPolicyRules[0].Action = "x" })},
		{"rule operator", at + "restartPolicyRules[0].exitCodes.operator", c(func(c *v1.Container) { c.RestartPolicyRules[0].ExitCodes.Operator = "x" })},
		{"rule without codes", at + "restartPolicyRules[0].exitCodes", c(func(c *v1.Container) { c.RestartPolicyRules[0].ExitCodes = nil })},
		{"rule with 256 codes", at + "restartPolicyRules[0].exitCodes.values", c(func(c *v1.Container) { c.RestartPolicyRules[0].ExitCodes.Values = make([]int32, 256) })},
		{"probe of an init container", "spec.initContainers[1].livenessProbe", once(func(c *v1.Container) { c.LivenessProbe = &v1.Probe{} })},
		{"hook of an init container", "spec.initContainers[1].lifecycle", once(func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{} })},
	})
}

func TestRulesOfProbesAndHooks(t *testing.T) {
	live := func(edit func(p *v1.Probe)) func(*v1.Pod) {
		return func(p *v1.Pod) { edit(p.Spec.Containers[0].LivenessProbe) }
	}
	hooks := func(edit func(l *v1.Lifecycle)) func(*v1.Pod) {
		return func(p *v1.Pod) { edit(p.Spec.Containers[0].Lifecycle) }
	}
	const liveness, lifecycle = "spec.containers[0].livenessProbe", "spec.containers[0].lifecycle"
	checkRules(t, []rule{
		{"no handler", liveness, live(func(p *v1.Probe) { p.HTTPGet = nil })},
		{"two handlers", liveness, live(func(p *v1.Probe) { p.TCPSocket = &v1.TCPSocketAction{Port: intstr.FromInt32(80)} })},
		{"port 0", liveness + ".httpGet.port", live(func(p *v1.Probe) { p.HTTPGet.Port = intstr.FromInt32(0) })},
		{"port name", liveness + ".httpGet.port", live(func(p *v1.Probe) { p.HTTPGet.Port = intstr.FromString("-") })},
		{"scheme", liveness + ".httpGet.scheme", live(func(p *v1.Probe) { p.HTTPGet.Scheme = "https" })},
		{"header", liveness + ".httpGet.httpHeaders[0].name", live(func(p *v1.Probe) { p.HTTPGet.HTTPHeaders[0].Name = "a b" })},
		{"protocol", liveness + ".httpGet.protocol", live(func(p *v1.Probe) { h := v1.HTTPProtocolHTTP2; p.HTTPGet.Protocol = &h })},
		{"negative delay", liveness + ".initialDelaySeconds", live(func(p *v1.Probe) { p.InitialDelaySeconds = -1 })},
		{"negative timeout", liveness + ".timeoutSeconds", live(func(p *v1.Probe) { p.TimeoutSeconds = -1 })},
		{"negative period", liveness + ".periodSeconds", live(func(p *v1.Probe) { p.PeriodSeconds = -1 })},
		{"negative failures", liveness + ".failureThreshold", live(func(p *v1.Probe) { p.FailureThreshold = -1 })},
		{"two successes", liveness + ".successThreshold", live(func(p *v1.Probe) { p.SuccessThreshold = 2 })},
		{"no grace", liveness + ".terminationGracePeriodSeconds", live(func(p *v1.Probe) { *p.TerminationGracePeriodSeconds = 0 })},
		{"grace of readiness", "spec.containers[0].readinessProbe.terminationGracePeriodSeconds", func(p *v1.Pod) { g := int64(1); p.Spec.Containers[0].ReadinessProbe.TerminationGracePeriodSeconds = &g }},
		{"gRPC port", "spec.containers[0].readinessProbe.grpc.port", func(p *v1.Pod) { p.Spec.Containers[0].ReadinessProbe.GRPC.Port = 0 }},
		{"no command", "spec.containers[0].startupProbe.exec.command", func(p *v1.Pod) { p.Spec.Containers[0].StartupProbe.Exec.Command = nil }},
		{"probe of a sidecar", "spec.initContainers[0].startupProbe.tcpSocket.port", func(p *v1.Pod) { p.Spec.InitContainers[0].StartupProbe.TCPSocket.Port = intstr.FromInt32(-1) }},
		{"hook over TCP", lifecycle + ".preStop.tcpSocket", hooks(func(l *v1.Lifecycle) {
			l.PreStop = &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}
		})},
		{"hook of nothing", lifecycle + ".preStop", hooks(func(l *v1.Lifecycle) { l.PreStop.Sleep = nil })},
		{"hook of two", lifecycle + ".postStart", hooks(func(l *v1.Lifecycle) { l.PostStart.Sleep = &v1.SleepAction{Seconds: 1} })},
		{"hook that sleeps past the grace", lifecycle + ".preStop.sleep.seconds", hooks(func(l *v1.Lifecycle) { l.PreStop.Sleep.Seconds = 21 })},
		{"hook that sleeps backwards", lifecycle + ".preStop.sleep.seconds", hooks(func(l *v1.Lifecycle) { l.PreStop.Sleep.Seconds = -1 })},
		{"signal", lifecycle + ".stopSignal", hooks(func(l *v1.Lifecycle) { *l.StopSignal = "TERM" })},
		{"signal for an unknown system", lifecycle + ".stopSignal", func(p *v1.Pod) { p.Spec.OS = nil }},
	})
}

func TestRulesOfResources(t *testing.T) {
	c := func(edit func(r *v1.ResourceRequirements)) func(*v1.Pod) {
		return func(p *v1.Pod) { edit(&p.Spec.Containers[0].Resources) }
	}
	const at, pod = "spec.containers[0].resources", "spec.resources"
	checkRules(t, []rule{
		{"negative", at, c(func(r *v1.ResourceRequirements) { r.Limits["cpu"] = resource.MustParse("-1") })},
		{"unknown name", at + ".requests[gpu]", c(func(r *v1.ResourceRequirements) { r.Requests["gpu"] = resource.MustParse("1") })},
		{"name of a quota", at + ".limits[requests.cpu]", c(func(r *v1.ResourceRequirements) { r.Limits["requests.cpu"] = resource.MustParse("1") })},
		{"name of a quota with domain", at + ".limits[requests.a/b]", c(func(r *v1.ResourceRequirements) { r.Limits["requests.a/b"] = resource.MustParse("1") })},
		{"request above limit", at + ".requests[memory]", c(func(r *v1.ResourceRequirements) { r.Requests["memory"] = resource.MustParse("1025Mi") })},
		{"device unlike its limit", at + ".requests[example.com/gpu]", c(func(r *v1.ResourceRequirements) { r.Limits["example.com/gpu"] = resource.MustParse("2") })},
		{"device without limit", at + ".requests[example.com/gpu]", c(func(r *v1.ResourceRequirements) { delete(r.Limits, "example.com/gpu") })},
		{"half a device", at, c(func(r *v1.ResourceRequirements) {
			r.Limits["example.com/gpu"] = resource.MustParse("500m")
			r.Requests["example.com/gpu"] = resource.MustParse("500m")
		})},
		{"part of a huge page", at, c(func(r *v1.ResourceRequirements) {
			r.Limits["hugepages-2Mi"] = resource.MustParse("1Mi")
			r.Requests["hugepages-2Mi"] = resource.MustParse("1Mi")
		})},
		{"huge pages of no size", at + ".limits[hugepages-x]", c(func(r *v1.ResourceRequirements) { r.Limits["hugepages-x"] = resource.MustParse("1Mi") })},
		{"huge pages alone", at, c(func(r *v1.ResourceRequirements) {
			r.Limits, r.Requests = list("hugepages-2Mi", "2Mi"), list("hugepages-2Mi", "2Mi")
		})},
		{"overhead", "spec.overhead", func(p *v1.Pod) { p.Spec.Overhead = list("x", "1") }},
		{"storage of the pod", pod + ".limits[ephemeral-storage]", func(p *v1.Pod) { p.Spec.Resources.Limits["ephemeral-storage"] = resource.MustParse("2Gi") }},
		{"claims of the pod", pod + ".claims", func(p *v1.Pod) { p.Spec.Resources.Claims = make([]v1.ResourceClaim, 1) }},
		{"containers ask for more together", pod + ".requests[cpu]", func(p *v1.Pod) { p.Spec.Resources.Requests["cpu"] = resource.MustParse("1050m") }},
		{"a container may use more", at + ".limits[cpu]", func(p *v1.Pod) {
			p.Spec.Resources.Limits["cpu"] = resource.MustParse("3")
			p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("3500m")
		}},
		{"Windows has none of the pod", pod, func(p *v1.Pod) { p.Spec.OS.Name = v1.Windows; p.Spec.Containers[0].Lifecycle.StopSignal = nil }},
	})
}

func TestRulesOfVolumes(t *testing.T) {
	vol := func(i int, edit func(v *v1.Volume)) func(*v1.Pod) {
		return func(p *v1.Pod) { edit(&p.Spec.Volumes[i]) }
	}
	mount := func(i int, edit func(m *v1.VolumeMount)) func(*v1.Pod) {
		return func(p *v1.Pod) { edit(&p.Spec.Containers[0].VolumeMounts[i]) }
	}
	const at = "spec.containers[0].volumeMounts"
	checkRules(t, []rule{
		{"no name", "spec.volumes[10].name", vol(10, func(v *v1.Volume) { v.Name = "" })},
		{"name twice", "spec.volumes[10].name", vol(10, func(v *v1.Volume) { v.Name = "img" })},
		{"name with dots", "spec.volumes[10].name", vol(10, func(v *v1.Volume) { v.Name = "a.b" })},
		{"two kinds", "spec.volumes[0]", vol(0, func(v *v1.Volume) { v.HostPath = &v1.HostPathVolumeSource{Path: "/"} })},
		{"medium", "spec.volumes[0].emptyDir.medium", vol(0, func(v *v1.Volume) { v.EmptyDir.Medium = "Disk" })},
		{"negative size", "spec.volumes[0].emptyDir.sizeLimit", vol(0, func(v *v1.Volume) { q := resource.MustParse("-1"); v.EmptyDir.SizeLimit = &q })},
		{"host path missing", "spec.volumes[1].hostPath.path", vol(1, func(v *v1.Volume) { v.HostPath.Path = "" })},
		{"host path type", "spec.volumes[1].hostPath.type", vol(1, func(v *v1.Volume) { *v.HostPath.Type = "Dir" })},
		{"mode", "spec.volumes[2].downwardAPI.defaultMode", vol(2, func(v *v1.Volume) { *v.DownwardAPI.DefaultMode = 644 })},
		{"file mode", "spec.volumes[2].downwardAPI.items[0].mode", vol(2, func(v *v1.Volume) { *v.DownwardAPI.Items[0].Mode = -1 })},
		{"file at an absolute path", "spec.volumes[2].downwardAPI.items[0].path", vol(2, func(v *v1.Volume) { v.DownwardAPI.Items[0].Path = "/a" })},
		{"file where the writer works", "spec.volumes[2].downwardAPI.items[0].path", vol(2, func(v *v1.Volume) { v.DownwardAPI.Items[0].Path = "..data" })},
		{"file of nothing", "spec.volumes[2].downwardAPI.items[0]", vol(2, func(v *v1.Volume) { v.DownwardAPI.Items[0].FieldRef = nil })},
		{"file of an address", "spec.volumes[2].downwardAPI.items[0].fieldRef.fieldPath", vol(2, func(v *v1.Volume) { v.DownwardAPI.Items[0].FieldRef.FieldPath = "status.podIP" })},
		{"file of nobody's amount", "spec.volumes[2].downwardAPI.items[1].resourceFieldRef.containerName", vol(2, func(v *v1.Volume) { v.DownwardAPI.Items[1].ResourceFieldRef.ContainerName = "" })},
		{"projection of nothing", "spec.volumes[3].projected.sources[0]", vol(3, func(v *v1.Volume) { v.Projected.Sources[0].DownwardAPI = nil })},
		{"projection to one place", "spec.volumes[3].projected.sources[1].downwardAPI.items[0].path", vol(3, func(v *v1.Volume) { v.Projected.Sources = append(v.Projected.Sources, v.Projected.Sources[0]) })},
		{"image volume of nothing", "spec.volumes[4].image.reference", vol(4, func(v *v1.Volume) { v.Image.Reference = "" })},
		{"NFS server", "spec.volumes[5].nfs.server", vol(5, func(v *v1.Volume) { v.NFS.Server = "" })},
		{"NFS path", "spec.volumes[5].nfs.path", vol(5, func(v *v1.Volume) { v.NFS.Path = "a" })},
		{"iSCSI name", "spec.volumes[6].iscsi.iqn", vol(6, func(v *v1.Volume) { v.ISCSI.IQN = "x" })},
		{"iSCSI unit", "spec.volumes[6].iscsi.lun", vol(6, func(v *v1.Volume) { v.ISCSI.Lun = 256 })},
		{"fibre channel without unit", "spec.volumes[7].fc.lun", vol(7, func(v *v1.Volume) { v.FC.Lun = nil })},
		{"fibre channel to nowhere", "spec.volumes[7].fc", vol(7, func(v *v1.Volume) { v.FC.TargetWWNs = nil })},
		{"git", "spec.volumes[8].gitRepo.directory", vol(8, func(v *v1.Volume) { v.GitRepo.Directory = "../x" })},
		{"driver", "spec.volumes[9].flexVolume.driver", vol(9, func(v *v1.Volume) { v.FlexVolume.Driver = "../x" })},
		{"mount of an unknown volume", at + "[0].name", mount(0, func(m *v1.VolumeMount) { m.Name = "x" })},
		{"mount to nowhere", at + "[0].mountPath", mount(0, func(m *v1.VolumeMount) { m.MountPath = "" })},
		{"two mounts in one place", at + "[1].mountPath", mount(1, func(m *v1.VolumeMount) { m.MountPath = "/s" })},
		{"part above the volume", at + "[0].subPath", mount(0, func(m *v1.VolumeMount) { m.SubPath = "a/../../b" })},
		{"part at an absolute path", at + "[0].subPath", mount(0, func(m *v1.VolumeMount) { m.SubPath = "/a" })},
		{"part by name and expression", at + "[3].subPathExpr", mount(3, func(m *v1.VolumeMount) { m.SubPath = "a" })},
		{"propagation", at + "[1].mountPropagation", mount(1, func(m *v1.VolumeMount) { *m.MountPropagation = "x" })},
		{"propagation without privilege", at + "[1].mountPropagation", func(p *v1.Pod) { *p.Spec.Containers[0].SecurityContext.Privileged = false }},
		{"read only below what is not", at + "[2].recursiveReadOnly", mount(2, func(m *v1.VolumeMount) { m.ReadOnly = false })},
		{"mount option", at + "[0].bindMountOptions[0]", mount(0, func(m *v1.VolumeMount) { m.BindMountOptions = []string{"x"} })},
	})
}

func TestRulesOfSecurity(t *testing.T) {
	pod := func(edit func(s *v1.PodSecurityContext)) func(*v1.Pod) {
		return func(p *v1.Pod) { edit(p.Spec.SecurityContext) }
	}
	c := func(edit func(s *v1.SecurityContext)) func(*v1.Pod) {
		return func(p *v1.Pod) { edit(p.Spec.Containers[0].SecurityContext) }
	}
	const at, whole = "spec.containers[0].securityContext", "spec.securityContext"
	no := false
	unmasked := v1.UnmaskedProcMount
	checkRules(t, []rule{
		{"shared processes with the host's", "spec.shareProcessNamespace", func(p *v1.Pod) { p.Spec.HostPID = true }},
		{"own users with the host's IPC", "spec.hostIPC", func(p *v1.Pod) { p.Spec.HostUsers, p.Spec.HostIPC = &no, true }},
		{"user", whole + ".runAsUser", pod(func(s *v1.PodSecurityContext) { *s.RunAsUser = -1 })},
		{"group", whole + ".runAsGroup", pod(func(s *v1.PodSecurityContext) { *s.RunAsGroup = 1 << 40 })},
		{"group of volumes", whole + ".fsGroup", pod(func(s *v1.PodSecurityContext) { *s.FSGroup = -1 })},
		{"more groups", whole + ".supplementalGroups[1]", pod(func(s *v1.PodSecurityContext) { s.SupplementalGroups[1] = -1 })},
		{"policy of groups", whole + ".supplementalGroupsPolicy", pod(func(s *v1.PodSecurityContext) { *s.SupplementalGroupsPolicy = "x" })},
		{"policy of the volumes' group", whole + ".fsGroupChangePolicy", pod(func(s *v1.PodSecurityContext) { *s.FSGroupChangePolicy = "x" })},
		{"policy of labels", whole + ".seLinuxChangePolicy", pod(func(s *v1.PodSecurityContext) { *s.SELinuxChangePolicy = "x" })},
		{"seccomp type", whole + ".seccompProfile.type", pod(func(s *v1.PodSecurityContext) { s.SeccompProfile = &v1.SeccompProfile{Type: "x"} })},
		{"seccomp profile above", whole + ".seccompProfile.localhostProfile", pod(func(s *v1.PodSecurityContext) { *s.SeccompProfile.LocalhostProfile = "../x" })},
		{"seccomp profile missing", whole + ".seccompProfile.localhostProfile", pod(func(s *v1.PodSecurityContext) { s.SeccompProfile.LocalhostProfile = nil })},
		{"seccomp profile too much", at + ".seccompProfile.localhostProfile", c(func(s *v1.SecurityContext) { x := "x"; s.SeccompProfile.LocalhostProfile = &x })},
		{"AppArmor profile", whole + ".appArmorProfile.localhostProfile", pod(func(s *v1.PodSecurityContext) { *s.AppArmorProfile.LocalhostProfile = " x" })},
		{"sysctl without name", whole + ".sysctls[0].name", pod(func(s *v1.PodSecurityContext) { s.Sysctls[0].Name = "" })},
		{"sysctl", whole + ".sysctls[0].name", pod(func(s *v1.PodSecurityContext) { s.Sysctls[0].Name = "net..x" })},
		{"sysctl twice", whole + ".sysctls[1].name", pod(func(s *v1.PodSecurityContext) { s.Sysctls = append(s.Sysctls, s.Sysctls[0]) })},
		{"Windows options on Linux", whole + ".windowsOptions", pod(func(s *v1.PodSecurityContext) { s.WindowsOptions = &v1.WindowsSecurityContextOptions{} })},
		{"host process without the host's network", at + ".windowsOptions", c(func(s *v1.SecurityContext) {
			yes := true
			s.WindowsOptions = &v1.WindowsSecurityContextOptions{HostProcess: &yes}
		})},
		{"privileged without escalation", at, c(func(s *v1.SecurityContext) { *s.AllowPrivilegeEscalation = false })},
		{"proc mount", at + ".procMount", c(func(s *v1.SecurityContext) { x := v1.ProcMountType("x"); s.ProcMount = &x })},
		{"proc mount unmasked for the host's users", at + ".procMount", c(func(s *v1.SecurityContext) { s.ProcMount = &unmasked })},
		{"container user", at + ".runAsUser", c(func(s *v1.SecurityContext) { *s.RunAsUser = -1 })},
	})
}

func TestDefaults(t *testing.T) {
	p := decodeGood(t, `
apiVersion: v1
kind: Pod
metadata: {name: x}
spec:
  hostNetwork: true
  serviceAccount: ""
  volumes: [{name: e}, {name: h, hostPath: {path: /}}, {name: d, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}]
  containers:
  - name: c
    image: a/b
    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 1100.5m, memory: 1Gi}, requests: {memory: 1Mi}}
    livenessProbe: {httpGet: {port: 80}}
    lifecycle: {preStop: {httpGet: {port: 80}}}
`)
	s, c := &p.Spec, &p.Spec.Containers[0]
	for what, ok := range map[string]bool{
		"restart policy":  s.RestartPolicy == v1.RestartPolicyAlways,
		"DNS policy":      s.DNSPolicy == v1.DNSClusterFirst,
		"grace":           *s.TerminationGracePeriodSeconds == 30,
		"scheduler":       s.SchedulerName == "default-scheduler",
		"service links":   *s.EnableServiceLinks,
		"security":        s.SecurityContext != nil,
		"message path":    c.TerminationMessagePath == "/dev/termination-log",
		"message policy":  c.TerminationMessagePolicy == v1.TerminationMessageReadFile,
		"protocol":        c.Ports[0].Protocol == v1.ProtocolTCP,
		"host port":       c.Ports[0].HostPort == 80,
		"probe timeout":   c.LivenessProbe.TimeoutSeconds == 1,
		"probe period":    c.LivenessProbe.PeriodSeconds == 10,
		"probe success":   c.LivenessProbe.SuccessThreshold == 1,
		"probe failure":   c.LivenessProbe.FailureThreshold == 3,
		"probe path":      c.LivenessProbe.HTTPGet.Path == "/",
		"probe scheme":    c.LivenessProbe.HTTPGet.Scheme == v1.URISchemeHTTP,
		"hook scheme":     c.Lifecycle.PreStop.HTTPGet.Scheme == v1.URISchemeHTTP,
		"request":         c.Resources.Requests.Cpu().MilliValue() == 1101,
		"request of ours": c.Resources.Requests.Memory().Value() == 1<<20,
		"empty volume":    s.Volumes[0].EmptyDir != nil,
		"host path type":  *s.Volumes[1].HostPath.Type == v1.HostPathUnset,
		"file mode":       *s.Volumes[2].DownwardAPI.DefaultMode == 0o644,
		"field version":   s.Volumes[2].DownwardAPI.Items[0].FieldRef.APIVersion == "v1",
	} {
		if !ok {
			t.Errorf("default of %s is wrong", what)
		}
	}
}

func TestPullPolicyFollowsTheTag(t *testing.T) {
	for image, want := range map[string]v1.PullPolicy{
		"a": v1.PullAlways, "a:latest": v1.PullAlways, "a:1": v1.PullIfNotPresent, "r:5000/a": v1.PullAlways, "r:5000/a:1": v1.PullIfNotPresent,
		"a@sha256:00": v1.PullIfNotPresent, "a:1@sha256:00": v1.PullIfNotPresent, "a:latest@sha256:00": v1.PullAlways,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestSizesOfThePodComeFromItsContainers(t *testing.T) {
	p := decodeGood(t, web+"    resources: {requests: {cpu: 200m}}\n  - {name: d, image: i, resources: {limits: {cpu: 300m}}}\n  resources: {limits: {cpu: 1, memory: 1Gi}}\n")
	r := p.Spec.Resources.Requests
	if r.Cpu().MilliValue() != 500 || r.Memory().Value() != 1<<30 {
		t.Errorf("requests %v", r)
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	_, _, err := Decode([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers: [" + strings.Repeat("{name: A, image: i}, ", 300) + "]\n"))
	if err == nil || !strings.Contains(err.Error(), "; and at least 9") || !strings.HasSuffix(err.Error(), " more") {
		t.Errorf("%v", err)
	}
}
