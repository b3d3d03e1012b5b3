package admit

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

var (
	_ syncloop.Admitter = Fit{}
	_ syncloop.Admitter = Platform{}
	_ syncloop.Admitter = Sysctls{}
	_ syncloop.Admitter = Features{}
	_ syncloop.Admitter = AppArmor{}
	_ syncloop.Admitter = Claims{}
)

// reason is why an error refuses, empty for none.
func reason(t *testing.T, err error) (why, message string) {
	t.Helper()
	if err == nil {
		return "", ""
	}
	r, ok := errors.AsType[*runtime.Rejection](err)
	if !ok {
		t.Fatalf("%v is no rejection", err)
	}
	return r.Reason, r.Message
}

type list = map[string]string

func amounts(l list) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range l {
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func podOf(edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func named(name string, uid types.UID) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Name, p.UID = name, uid }
}

func asks(l list) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts(l) }
}

func port(number int32, protocol v1.Protocol, ip string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.Ports = append(c.Ports, v1.ContainerPort{ContainerPort: 1, HostPort: number, Protocol: protocol, HostIP: ip})
	}
}

func nodeOf(edits ...func(*v1.Node)) func() *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: list{"disk": "ssd"}},
		Status:     v1.NodeStatus{Allocatable: amounts(list{"cpu": "2", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "3", "example.com/gpu": "1", "hugepages-2Mi": "0"})},
	}
	for _, edit := range edits {
		edit(n)
	}
	return func() *v1.Node { return n }
}

func tainted(effect v1.TaintEffect) func(*v1.Node) {
	return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "down", Value: "yes", Effect: effect}} }
}

func tolerating(t v1.Toleration) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func from(source string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations = list{podspec.SourceAnnotation: source} }
}

func TestFit(t *testing.T) {
	small := asks(list{"cpu": "500m", "memory": "100Mi"})
	always := v1.ContainerRestartPolicyAlways
	init := func(restart *v1.ContainerRestartPolicy, l list, ports ...v1.ContainerPort) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{
				Name: "i", RestartPolicy: restart, Ports: ports, Resources: v1.ResourceRequirements{Requests: amounts(l)},
			})
		}
	}
	affinity := func(values ...string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: v1.NodeSelectorOpIn, Values: values}}}},
			}}}
		}
	}
	for name, c := range map[string]struct {
		pod    *v1.Pod
		others []*v1.Pod
		node   func() *v1.Node
		want   string // reason
		says   string // part of the message
	}{
		"asking for nothing fits":                   {pod: podOf(), node: nodeOf()},
		"asking for what is there fits":             {pod: podOf(asks(list{"cpu": "2", "memory": "1Gi"})), node: nodeOf()},
		"asking for a thousandth more does not":     {pod: podOf(asks(list{"cpu": "2001m"})), node: nodeOf(), want: "OutOfcpu", says: "Node didn't have enough resource: cpu, requested: 2001, used: 0, capacity: 2000"},
		"others count":                              {pod: podOf(asks(list{"cpu": "1"})), others: []*v1.Pod{podOf(named("o", "o"), asks(list{"cpu": "1500m"}))}, node: nodeOf(), want: "OutOfcpu"},
		"of processor and memory the first is said": {pod: podOf(asks(list{"memory": "2Gi", "cpu": "3"})), node: nodeOf(), want: "OutOfcpu"},
		"memory":  {pod: podOf(asks(list{"memory": "2Gi"})), node: nodeOf(), want: "OutOfmemory", says: "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824"},
		"storage": {pod: podOf(asks(list{"ephemeral-storage": "11Gi"})), node: nodeOf(), want: "OutOfephemeral-storage"},
		"too many pods": {
			pod:    podOf(),
			others: []*v1.Pod{podOf(named("a", "a")), podOf(named("b", "b")), podOf(named("c", "c"))},
			node:   nodeOf(), want: "OutOfpods", says: "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
		},
		"a device too many":                     {pod: podOf(asks(list{"example.com/gpu": "2"})), node: nodeOf(), want: "OutOfexample.com/gpu", says: "Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1"},
		"a device this node knows nothing of":   {pod: podOf(asks(list{"example.com/other": "2"})), node: nodeOf()},
		"huge pages this node has none of":      {pod: podOf(asks(list{"hugepages-2Mi": "64Mi"})), node: nodeOf(), want: "OutOfhugepages-2Mi"},
		"huge pages this node never heard of":   {pod: podOf(asks(list{"hugepages-1Gi": "1Gi"})), node: nodeOf(), want: "OutOfhugepages-1Gi"},
		"an init container needs the most":      {pod: podOf(small, init(nil, list{"cpu": "3"})), node: nodeOf(), want: "OutOfcpu"},
		"an init container runs alone":          {pod: podOf(asks(list{"cpu": "2"}), init(nil, list{"cpu": "2"})), node: nodeOf()},
		"a sidecar runs beside":                 {pod: podOf(asks(list{"cpu": "2"}), init(&always, list{"cpu": "1m"})), node: nodeOf(), want: "OutOfcpu"},
		"sizes of the pod as a whole count":     {pod: podOf(small, func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: amounts(list{"cpu": "3"})} }), node: nodeOf(), want: "OutOfcpu"},
		"overhead counts":                       {pod: podOf(asks(list{"cpu": "2"}), func(p *v1.Pod) { p.Spec.Overhead = amounts(list{"cpu": "1m"}) }), node: nodeOf(), want: "OutOfcpu"},
		"a new size replaces the old one":       {pod: podOf(asks(list{"cpu": "2"})), others: []*v1.Pod{podOf(asks(list{"cpu": "1"}))}, node: nodeOf()},
		"a node that says nothing of its size":  {pod: podOf(asks(list{"cpu": "64"})), node: nodeOf(func(n *v1.Node) { n.Status.Allocatable = nil })},
		"no node":                               {pod: podOf(asks(list{"cpu": "64"}), func(p *v1.Pod) { p.Spec.NodeSelector = list{"no": "such"} })},
		"a node not known yet":                  {pod: podOf(asks(list{"cpu": "64"})), node: func() *v1.Node { return nil }},
		"a selector that matches":               {pod: podOf(func(p *v1.Pod) { p.Spec.NodeSelector = list{"disk": "ssd"} }), node: nodeOf()},
		"a selector that does not":              {pod: podOf(func(p *v1.Pod) { p.Spec.NodeSelector = list{"disk": "tape"} }), node: nodeOf(), want: "NodeAffinity"},
		"an affinity that matches":              {pod: podOf(affinity("hdd", "ssd")), node: nodeOf()},
		"an affinity that does not":             {pod: podOf(affinity("hdd")), node: nodeOf(), want: "NodeAffinity", says: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		"an affinity that makes no sense":       {pod: podOf(affinity("no spaces allowed")), node: nodeOf(), want: "NodeAffinity"},
		"resources are said before affinity":    {pod: podOf(affinity("hdd"), asks(list{"cpu": "3"})), node: nodeOf(), want: "OutOfcpu"},
		"another node":                          {pod: podOf(func(p *v1.Pod) { p.Spec.NodeName = "n2" }), node: nodeOf(), want: "NodeName", says: "Predicate NodeName failed: node(s) didn't match the requested node name"},
		"this node":                             {pod: podOf(func(p *v1.Pod) { p.Spec.NodeName = "n1" }), node: nodeOf()},
		"a port that is taken":                  {pod: podOf(port(80, v1.ProtocolTCP, "")), others: []*v1.Pod{podOf(named("o", "o"), port(80, v1.ProtocolTCP, ""))}, node: nodeOf(), want: "NodePorts", says: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		"a port that is taken, without a node":  {pod: podOf(port(80, v1.ProtocolTCP, "")), others: []*v1.Pod{podOf(named("o", "o"), port(80, v1.ProtocolTCP, ""))}, want: "NodePorts"},
		"no protocol is TCP":                    {pod: podOf(port(80, "", "")), others: []*v1.Pod{podOf(named("o", "o"), port(80, v1.ProtocolTCP, ""))}, want: "NodePorts"},
		"another protocol":                      {pod: podOf(port(80, v1.ProtocolUDP, "")), others: []*v1.Pod{podOf(named("o", "o"), port(80, v1.ProtocolTCP, ""))}},
		"another port":                          {pod: podOf(port(81, v1.ProtocolTCP, "")), others: []*v1.Pod{podOf(named("o", "o"), port(80, v1.ProtocolTCP, ""))}},
		"another address":                       {pod: podOf(port(80, v1.ProtocolTCP, "127.0.0.1")), others: []*v1.Pod{podOf(named("o", "o"), port(80, v1.ProtocolTCP, "127.0.0.2"))}},
		"all addresses are taken":               {pod: podOf(port(80, v1.ProtocolTCP, "127.0.0.1")), others: []*v1.Pod{podOf(named("o", "o"), port(80, v1.ProtocolTCP, "0.0.0.0"))}, want: "NodePorts"},
		"all addresses are wanted":              {pod: podOf(port(80, v1.ProtocolTCP, "")), others: []*v1.Pod{podOf(named("o", "o"), port(80, v1.ProtocolTCP, "127.0.0.1"))}, want: "NodePorts"},
		"a port the pod itself had":             {pod: podOf(port(80, v1.ProtocolTCP, "")), others: []*v1.Pod{podOf(port(80, v1.ProtocolTCP, ""))}},
		"a sidecar holds its port":              {pod: podOf(port(80, v1.ProtocolTCP, "")), others: []*v1.Pod{podOf(named("o", "o"), init(&always, nil, v1.ContainerPort{HostPort: 80}))}, want: "NodePorts"},
		"an init container's port is free soon": {pod: podOf(port(80, v1.ProtocolTCP, "")), others: []*v1.Pod{podOf(named("o", "o"), init(nil, nil, v1.ContainerPort{HostPort: 80}))}},
		"a taint that drives out":               {pod: podOf(), node: nodeOf(tainted(v1.TaintEffectNoExecute)), want: "TaintToleration", says: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"},
		"a taint for schedulers":                {pod: podOf(), node: nodeOf(tainted(v1.TaintEffectNoSchedule))},
		"a taint, and a static pod":             {pod: podOf(from("file")), node: nodeOf(tainted(v1.TaintEffectNoExecute))},
		"a taint, and a pod of an API server":   {pod: podOf(from("api")), node: nodeOf(tainted(v1.TaintEffectNoExecute)), want: "TaintToleration"},
		"a taint tolerated by value":            {pod: podOf(tolerating(v1.Toleration{Key: "down", Value: "yes"})), node: nodeOf(tainted(v1.TaintEffectNoExecute))},
		"a taint tolerated whatever it is":      {pod: podOf(tolerating(v1.Toleration{Operator: v1.TolerationOpExists})), node: nodeOf(tainted(v1.TaintEffectNoExecute))},
		"another value tolerated":               {pod: podOf(tolerating(v1.Toleration{Key: "down", Value: "no"})), node: nodeOf(tainted(v1.TaintEffectNoExecute)), want: "TaintToleration"},
		"another effect tolerated":              {pod: podOf(tolerating(v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule})), node: nodeOf(tainted(v1.TaintEffectNoExecute)), want: "TaintToleration"},
		"a comparison tolerates nothing":        {pod: podOf(tolerating(v1.Toleration{Key: "down", Operator: "Gt", Value: "1"})), node: nodeOf(tainted(v1.TaintEffectNoExecute)), want: "TaintToleration"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(c.others)
			got, message := reason(t, Fit{Node: c.node}.Admit(t.Context(), c.pod, c.others))
			if got != c.want || !strings.Contains(message, c.says) {
				t.Errorf("%q %q, want %q with %q", got, message, c.want, c.says)
			}
			if len(c.others) != before || before > 0 && c.others[0] == nil {
				t.Error("the others were changed")
			}
		})
	}
}

func TestPlatform(t *testing.T) {
	strict := func(p *v1.Pod) {
		policy := v1.SupplementalGroupsPolicyStrict
		p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &policy}
	}
	merged := func(p *v1.Pod) {
		policy := v1.SupplementalGroupsPolicyMerge
		p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &policy}
	}
	can := func(yes bool) func(*v1.Node) {
		return func(n *v1.Node) { n.Status.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &yes} }
	}
	answers := func(yes bool) func(context.Context) (runtime.Info, error) {
		return func(context.Context) (runtime.Info, error) {
			return runtime.Info{Ready: runtime.Condition{OK: true}, GroupsPolicy: yes}, nil
		}
	}
	for name, c := range map[string]struct {
		pod        *v1.Pod
		node       func() *v1.Node
		info       func(context.Context) (runtime.Info, error)
		want, says string
	}{
		"no system named":            {pod: podOf()},
		"linux":                      {pod: podOf(func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Linux} })},
		"windows":                    {pod: podOf(func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }), want: "PodOSNotSupported", says: "Failed to admit pod as the OS field doesn't match node OS"},
		"labelled linux":             {pod: podOf(func(p *v1.Pod) { p.Labels = list{v1.LabelOSStable: "linux"} })},
		"labelled windows":           {pod: podOf(func(p *v1.Pod) { p.Labels = list{v1.LabelOSStable: "windows"} }), want: "PodOSSelectorNodeLabelDoesNotMatch", says: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"},
		"strict groups, no node":     {pod: podOf(strict)},
		"strict groups, node can":    {pod: podOf(strict), node: nodeOf(can(true))},
		"strict groups, node cannot": {pod: podOf(strict), node: nodeOf(can(false)), want: "SupplementalGroupsPolicyNotSupported", says: "SupplementalGroupsPolicy=Strict is not supported in this node"},
		"strict groups, node silent": {pod: podOf(strict), node: nodeOf(), want: "SupplementalGroupsPolicyNotSupported"},

		"strict groups, the runtime can":                    {pod: podOf(strict), info: answers(true)},
		"strict groups, the runtime does not say so":        {pod: podOf(strict), info: answers(false), want: "SupplementalGroupsPolicyNotSupported", says: "SupplementalGroupsPolicy=Strict is not supported in this node"},
		"strict groups, the runtime can and the node knows": {pod: podOf(strict), node: nodeOf(can(false)), info: answers(true), want: "SupplementalGroupsPolicyNotSupported"},
		"other groups, the runtime cannot":                  {pod: podOf(merged), info: answers(false)},
	} {
		t.Run(name, func(t *testing.T) {
			got, says := reason(t, Platform{OS: "linux", Node: c.node, Info: c.info}.Admit(t.Context(), c.pod, nil))
			if got != c.want || c.says != "" && says != c.says {
				t.Errorf("%q %q, want %q %q", got, says, c.want, c.says)
			}
		})
	}
	for name, info := range map[string]func(context.Context) (runtime.Info, error){
		"away":      func(context.Context) (runtime.Info, error) { return runtime.Info{}, runtime.ErrUnavailable },
		"not ready": func(context.Context) (runtime.Info, error) { return runtime.Info{}, nil },
	} {
		err := Platform{OS: "linux", Info: info}.Admit(t.Context(), podOf(strict), nil)
		if _, refused := errors.AsType[*runtime.Rejection](err); refused || err == nil {
			t.Errorf("a runtime that is %s cannot be judged: %v", name, err)
		}
	}
}

func TestSysctls(t *testing.T) {
	no := false
	host := func(what string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			switch what {
			case "network":
				p.Spec.HostNetwork = true
			case "ipc":
				p.Spec.HostIPC = true
			case "own users":
				p.Spec.HostUsers = &no
			}
		}
	}
	s := Sysctls{Unsafe: []string{"kernel.msg*", "kernel/sem", "net.b.*", "user.*"}}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sysctl, with string
		kernel       string
		refused      bool
	}{
		"safe":                             {sysctl: "kernel.shm_rmid_forced"},
		"safe, with slashes":               {sysctl: "kernel/shm_rmid_forced"},
		"safe, of the network":             {sysctl: "net.ipv4.ip_local_port_range"},
		"safe, kernel new enough":          {sysctl: "net.ipv4.tcp_rmem", kernel: "4.15.0-20-generic"},
		"safe, kernel too old":             {sysctl: "net.ipv4.tcp_rmem", kernel: "4.14.336", refused: true},
		"safe, host has the same network":  {sysctl: "net.ipv4.ip_local_port_range", with: "network", refused: true},
		"safe, host has the same IPC":      {sysctl: "kernel.shm_rmid_forced", with: "ipc", refused: true},
		"safe, host shares something else": {sysctl: "kernel.shm_rmid_forced", with: "network"},
		"allowed by a pattern":             {sysctl: "kernel.msgmax"},
		"allowed by name":                  {sysctl: "kernel.sem"},
		"allowed, with slashes":            {sysctl: "kernel/sem"},
		"allowed, host has the same IPC":   {sysctl: "kernel.msgmax", with: "ipc", refused: true},
		"allowed, host has the same net":   {sysctl: "net.b.c", with: "network", refused: true},
		"allowed, own users":               {sysctl: "user.max_user_namespaces", with: "own users"},
		"allowed, the host's users":        {sysctl: "user.max_user_namespaces", refused: true},
		"unknown":                          {sysctl: "foo", refused: true},
		"of the node":                      {sysctl: "kernel.pid_max", refused: true},
		"like a safe one, but longer":      {sysctl: "net.ipv4.ip_local_port_range.a", refused: true},
		"not allowed":                      {sysctl: "net.a.b.c", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			s.Kernel = c.kernel
			pod := podOf(host(c.with), func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: c.sysctl, Value: "1"}}}
			})
			got, message := reason(t, s.Admit(t.Context(), pod, nil))
			if (got == "SysctlForbidden") != c.refused || !c.refused && got != "" {
				t.Errorf("%q %q, want refused %v", got, message, c.refused)
			}
		})
	}
	if err := s.Admit(t.Context(), podOf(), nil); err != nil {
		t.Errorf("a pod without sysctls: %v", err)
	}
	set := func(name string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: name}}} }
	}
	for want, pod := range map[string]*v1.Pod{
		`forbidden sysctl: "kernel.pid_max" not allowlisted`:                                 podOf(set("kernel/pid_max")),
		`forbidden sysctl: "net.ipv4.ip_local_port_range" not allowed with host Net enabled`: podOf(set("net.ipv4.ip_local_port_range"), host("network")),
	} {
		if _, says := reason(t, s.Admit(t.Context(), pod, nil)); says != want {
			t.Errorf("says %s, want %s", says, want)
		}
	}
	if got, _ := reason(t, Sysctls{Unsafe: []string{"kernel.*"}}.Admit(t.Context(), podOf(func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.pid_max", Value: "1"}}}
	}), nil)); got != "SysctlForbidden" {
		t.Error("a pattern over what belongs to the node allows it")
	}
}

func TestUnsafeSysctlsAreChecked(t *testing.T) {
	for pattern, good := range maps.All(map[string]bool{
		"kernel.msg*": true, "kernel/msg*": true, "kernel.sem": true, "net.*": true, "net.ipv4.conf.all.x": true, "fs.mqueue.*": true,
		" kernel.msg*": false, "kernel.msg* ": false, "net.-": false, "net.*.foo": false, "net.*/foo": false, "foo": false, "foo*": false,
		"*": false, "": false, "kernel.pid_max": false, "net." + strings.Repeat("a", 300): false,
	}) {
		if err := (Sysctls{Unsafe: []string{pattern}}).Check(); (err == nil) != good {
			t.Errorf("%q: %v, want good %v", pattern, err, good)
		}
	}
}

func TestFeatures(t *testing.T) {
	rule := func(action v1.ContainerRestartRuleAction) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: action}} }
	}
	both := func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, new(false) }
	const all = "RestartAllContainersOnContainerExits"
	for name, c := range map[string]struct {
		pod      *v1.Pod
		declared []string
		says     string
	}{
		"a plain pod":                     {pod: podOf()},
		"a rule that every node has":      {pod: podOf(rule(v1.ContainerRestartRuleActionRestart))},
		"a rule that this node has":       {pod: podOf(rule(v1.ContainerRestartRuleActionRestartAllContainers)), declared: []string{"Other", all}},
		"a rule that this node has not":   {pod: podOf(rule(v1.ContainerRestartRuleActionRestartAllContainers)), says: "Pod requires node features that are not available: " + all},
		"two things that it has not":      {pod: podOf(rule(v1.ContainerRestartRuleActionRestartAllContainers), both), says: "Pod requires node features that are not available: " + all + ", UserNamespacesHostNetworkSupport"},
		"two things of which it has one ": {pod: podOf(rule(v1.ContainerRestartRuleActionRestartAllContainers), both), declared: []string{all}, says: "Pod requires node features that are not available: UserNamespacesHostNetworkSupport"},
	} {
		got, says := reason(t, Features{Declared: c.declared}.Admit(t.Context(), c.pod, nil))
		if says != c.says || (got == "PodFeatureUnsupported") != (c.says != "") {
			t.Errorf("%s: %q %q, want %q", name, got, says, c.says)
		}
	}
}

func TestClaims(t *testing.T) {
	claim := func(name string, template bool) func(*v1.Pod) {
		return func(p *v1.Pod) {
			c := v1.PodResourceClaim{Name: name, ResourceClaimName: new("of-" + name)}
			if template {
				c.ResourceClaimName, c.ResourceClaimTemplateName = nil, new("template")
			}
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, c)
		}
	}
	made := func(name string, as *string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, v1.PodResourceClaimStatus{Name: name, ResourceClaimName: as})
		}
	}
	used := func(p *v1.Pod) { p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}} }
	for name, c := range map[string]struct {
		pod  *v1.Pod
		says string // names of what cannot be had
	}{
		"no claim":                         {podOf(), ""},
		"one":                              {podOf(claim("gpu", false), used), "gpu"},
		"two, which no container uses":     {podOf(claim("gpu", false), claim("nic", true)), "gpu, nic"},
		"made from a template":             {podOf(claim("gpu", true), made("gpu", new("web-gpu"))), "gpu"},
		"from a template, not made yet":    {podOf(claim("gpu", true), made("nic", nil)), "gpu"},
		"from a template that needed none": {podOf(claim("gpu", true), made("gpu", nil)), ""},
		"for a resource that is asked by number": {podOf(func(p *v1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "web-extended"}
		}), "web-extended"},
		"it runs already": {podOf(claim("gpu", false), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }), "gpu"},
	} {
		got, says := reason(t, Claims{}.Admit(t.Context(), c.pod, nil))
		if (got == "PodFeatureUnsupported") != (c.says != "") || c.says != "" && !strings.Contains(says, "DynamicResourceAllocation; no claimed device can be prepared here ("+c.says+")") {
			t.Errorf("%s: %q %q, want %q", name, got, says, c.says)
		}
	}
}

func TestAppArmor(t *testing.T) {
	pod := func(kind v1.AppArmorProfileType, profile *string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: kind, LocalhostProfile: profile}}
		}
	}
	container := func(kind v1.AppArmorProfileType) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: kind}}
		}
	}
	note := func(value string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Annotations = list{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": value}
		}
	}
	in := func(phase v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = phase } }
	const off, empty = "Cannot enforce AppArmor: AppArmor is not enabled on the host", "Cannot enforce AppArmor: invalid empty AppArmor profile name"
	for name, c := range map[string]struct {
		pod     *v1.Pod
		enabled bool
		says    string
	}{
		"none asked for":            {pod: podOf()},
		"unconfined":                {pod: podOf(pod(v1.AppArmorProfileTypeUnconfined, nil))},
		"the runtime's own":         {pod: podOf(pod(v1.AppArmorProfileTypeRuntimeDefault, nil)), says: off},
		"of a container":            {pod: podOf(container(v1.AppArmorProfileTypeRuntimeDefault)), says: off},
		"by annotation":             {pod: podOf(note("runtime/default")), says: off},
		"by annotation, unconfined": {pod: podOf(note("unconfined"))},
		"by an empty annotation":    {pod: podOf(note("")), says: off},
		"an empty one, and enabled": {pod: podOf(note("")), enabled: true},
		"by annotation, a file":     {pod: podOf(note("localhost/x")), enabled: true},
		"by annotation, no file":    {pod: podOf(note("localhost/")), enabled: true, says: empty},
		"enforced":                  {pod: podOf(pod(v1.AppArmorProfileTypeLocalhost, new("x"))), enabled: true},
		"enforced, no name":         {pod: podOf(pod(v1.AppArmorProfileTypeLocalhost, new(" "))), enabled: true, says: empty},
		"it ran before":             {pod: podOf(in(v1.PodRunning), pod(v1.AppArmorProfileTypeRuntimeDefault, nil))},
		"it has not run yet":        {pod: podOf(in(v1.PodPending), pod(v1.AppArmorProfileTypeRuntimeDefault, nil)), says: off},
	} {
		got, says := reason(t, AppArmor{Enabled: c.enabled}.Admit(t.Context(), c.pod, nil))
		if says != c.says || (got == "AppArmor") != (c.says != "") {
			t.Errorf("%s: %q %q, want %q", name, got, says, c.says)
		}
	}
}

func TestLabelsThatAreNew(t *testing.T) {
	labelled := nodeOf(func(n *v1.Node) { n.Labels = list{"disk": "tape"} })()
	tape := func(p *v1.Pod) { p.Spec.NodeSelector = list{"disk": "tape"} }
	asked := 0
	fresh := func(n *v1.Node, err error) func(context.Context) (*v1.Node, error) {
		return func(ctx context.Context) (*v1.Node, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("it may take for ever")
			}
			asked++
			return n, err
		}
	}
	for name, c := range map[string]struct {
		pod   *v1.Pod
		fresh func(context.Context) (*v1.Node, error)
		want  string
		asks  int
	}{
		"the node has them now":     {pod: podOf(tape), fresh: fresh(labelled, nil), asks: 1},
		"it has not":                {pod: podOf(tape), fresh: fresh(nodeOf()(), nil), want: "NodeAffinity", asks: 1},
		"nobody can say":            {pod: podOf(tape), fresh: fresh(nil, errors.New("away")), want: "NodeAffinity", asks: 1},
		"something else is against": {pod: podOf(tape, func(p *v1.Pod) { p.Spec.NodeName = "n2" }), fresh: fresh(labelled, nil), want: "NodeAffinity"},
		"there is no room":          {pod: podOf(tape, asks(list{"cpu": "3"})), fresh: fresh(labelled, nil), want: "OutOfcpu"},
		"nothing is against":        {pod: podOf(), fresh: fresh(labelled, nil)},
		"the new node has less room": {pod: podOf(tape, asks(list{"cpu": "1"})), fresh: fresh(nodeOf(func(n *v1.Node) {
			n.Labels, n.Status.Allocatable = list{"disk": "tape"}, amounts(list{"cpu": "500m", "pods": "9"})
		})(), nil), want: "OutOfcpu", asks: 1},
	} {
		asked = 0
		got, _ := reason(t, Fit{Node: nodeOf(), Fresh: c.fresh}.Admit(t.Context(), c.pod, nil))
		if got != c.want || asked != c.asks {
			t.Errorf("%s: %q after asking %d times, want %q and %d", name, got, asked, c.want, c.asks)
		}
	}
}

func TestFitByItsOwnAccount(t *testing.T) {
	static, sent := from("file"), from("api")
	small := nodeOf(func(n *v1.Node) { n.Status.Allocatable = amounts(list{"cpu": "1", "memory": "1Gi", "pods": "3"}) })
	none := func() *v1.Node { return nil }
	kept := func(uid types.UID) bool { return uid == "u" }
	hdd := func(p *v1.Pod) { p.Spec.NodeSelector = list{"disk": "hdd"} }
	other := podOf(named("o", "o"), from("api"), asks(list{"cpu": "1500m"}), port(80, v1.ProtocolTCP, ""))
	const nobody = "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: " +
		"no set of running pods found to reclaim resources: [(res: cpu, q: 998000), ]"
	for name, c := range map[string]struct {
		fit    Fit
		pod    *v1.Pod
		others []*v1.Pod
		want   string // reason
		says   string // part of the message
	}{
		"there is room": {fit: Fit{Own: nodeOf()}, pod: podOf(static, asks(list{"cpu": "2"}))},
		"there is none for a pod of the node's own":     {fit: Fit{Own: nodeOf()}, pod: podOf(static, asks(list{"cpu": "1000"})), want: "UnexpectedAdmissionError", says: nobody},
		"nor for one that was sent":                     {fit: Fit{Own: nodeOf()}, pod: podOf(sent, asks(list{"cpu": "1000"})), want: "OutOfcpu", says: "requested: 1000000, used: 0, capacity: 2000"},
		"another makes it":                              {fit: Fit{Own: nodeOf()}, pod: podOf(static, asks(list{"cpu": "1"})), others: []*v1.Pod{other}, want: "OutOfcpu"},
		"the node does not know itself":                 {fit: Fit{Own: none}, pod: podOf(static, asks(list{"cpu": "1000"}))},
		"the object is not known yet":                   {fit: Fit{Node: none, Own: nodeOf()}, pod: podOf(sent, asks(list{"cpu": "3"})), want: "OutOfcpu"},
		"the object has less":                           {fit: Fit{Node: small, Own: nodeOf()}, pod: podOf(sent, asks(list{"cpu": "2"})), want: "OutOfcpu", says: "capacity: 1000"},
		"the object has more":                           {fit: Fit{Node: nodeOf(), Own: small}, pod: podOf(sent, asks(list{"cpu": "2"}))},
		"it was let in before":                          {fit: Fit{Own: nodeOf(), Kept: kept}, pod: podOf(static, asks(list{"cpu": "1000"}), hdd)},
		"another was":                                   {fit: Fit{Own: nodeOf(), Kept: kept}, pod: podOf(named("n", "n"), sent, asks(list{"cpu": "3"})), want: "OutOfcpu"},
		"it was let in before, and its port is taken":   {fit: Fit{Own: nodeOf(), Kept: kept}, pod: podOf(static, port(80, v1.ProtocolTCP, "")), others: []*v1.Pod{other}, want: "NodePorts"},
		"it was let in before, and the object has less": {fit: Fit{Node: small, Own: nodeOf(), Kept: kept}, pod: podOf(sent, asks(list{"cpu": "2"})), want: "OutOfcpu"},
		"it was let in before, and the label is gone":   {fit: Fit{Node: nodeOf(), Kept: kept}, pod: podOf(sent, hdd)}, // field reports kubernetes/kubernetes#76322, #99708
		"another was, and the label is gone":            {fit: Fit{Node: nodeOf(), Kept: kept}, pod: podOf(named("n", "n"), sent, hdd), want: "NodeAffinity"},
		"a label that it has not":                       {fit: Fit{Own: nodeOf()}, pod: podOf(static, hdd), want: "NodeAffinity"},
		"a label that whoever sent the pod has seen":    {fit: Fit{Own: nodeOf()}, pod: podOf(sent, hdd)},
		"a label that the server knows of": {fit: Fit{Own: nodeOf(), Fresh: func(context.Context) (*v1.Node, error) {
			return nodeOf(func(n *v1.Node) { n.Labels = list{"disk": "hdd"} })(), nil
		}}, pod: podOf(static, hdd)},
		"a taint from its registration": {fit: Fit{Own: nodeOf(tainted(v1.TaintEffectNoExecute))}, pod: podOf(sent)},
		"a taint, and a static pod":     {fit: Fit{Own: nodeOf(tainted(v1.TaintEffectNoExecute))}, pod: podOf(static)},
		"a port that is taken":          {fit: Fit{Own: nodeOf()}, pod: podOf(sent, port(80, v1.ProtocolTCP, "")), others: []*v1.Pod{other}, want: "NodePorts"},
		"too many pods":                 {fit: Fit{Own: nodeOf()}, pod: podOf(sent), others: []*v1.Pod{podOf(named("a", "a")), podOf(named("b", "b")), podOf(named("c", "c"))}, want: "OutOfpods"},
	} {
		t.Run(name, func(t *testing.T) {
			got, message := reason(t, c.fit.Admit(t.Context(), c.pod, c.others))
			if got != c.want || !strings.Contains(message, c.says) {
				t.Errorf("%q %q, want %q with %q", got, message, c.want, c.says)
			}
		})
	}
}
