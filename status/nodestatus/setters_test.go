package nodestatus

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func apply(t *testing.T, n *v1.Node, setters ...Setter) {
	t.Helper()
	for _, set := range setters {
		if err := set(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNodeInfo(t *testing.T) {
	n := &v1.Node{}
	n.Status.NodeInfo.KubeProxyVersion = "v1.30.0" //nolint:staticcheck // what an older kubelet left
	apply(t, n,
		MachineInfo(machine(Machine{MachineID: "m", SystemUUID: "s", BootID: "b", Kernel: "6.1", OSImage: "Debian", Swap: 1 << 30})),
		VersionInfo("v1.37.2"), DaemonEndpoints(10250), DeclaredFeatures("B", "A", "B"))
	no, swap := false, int64(1<<30)
	want := v1.NodeSystemInfo{
		MachineID: "m", SystemUUID: "s", BootID: "b", KernelVersion: "6.1", OSImage: "Debian", KubeletVersion: "v1.37.2",
		OperatingSystem: goruntime.GOOS, Architecture: goruntime.GOARCH, RunningInUserNamespace: &no, Swap: &v1.NodeSwapStatus{Capacity: &swap},
	}
	if !equality.Semantic.DeepEqual(n.Status.NodeInfo, want) {
		t.Errorf("%+v", n.Status.NodeInfo)
	}
	if n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 || !slices.Equal(n.Status.DeclaredFeatures, []string{"A", "B"}) {
		t.Errorf("%+v", n.Status)
	}
	apply(t, n, MachineInfo(machine(Machine{})))
	if n.Status.NodeInfo.Swap != nil {
		t.Error("swap that is gone is still shown")
	}
	was := n.DeepCopy()
	err := MachineInfo(func() (Machine, error) { return Machine{}, errors.New("no") })(t.Context(), n)
	if err == nil || !equality.Semantic.DeepEqual(was, n) {
		t.Error("a machine that cannot be read changes the node", err)
	}
}

func TestVolumesInUse(t *testing.T) {
	for _, c := range []struct {
		name    string
		mounted bool
		err     error
		left    int
	}{
		{"none is mounted", false, nil, 0},
		{"one is still mounted", true, nil, 1},
		{"nobody knows", false, errors.New("no"), 1},
	} {
		n := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"kubernetes.io/csi/d^v"}}}
		err := VolumesInUse(func() (bool, error) { return c.mounted, c.err })(t.Context(), n)
		if len(n.Status.VolumesInUse) != c.left || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.name, n.Status.VolumesInUse, err)
		}
	}
	apply(t, &v1.Node{}, VolumesInUse(func() (bool, error) { panic("asked without need") }))
}

func TestReady(t *testing.T) {
	ok, bad := func() error { return nil }, func() error { return errors.New("engine is away") }
	all := list("cpu", "1", "memory", "1Gi", "pods", "1")
	for _, c := range []struct {
		rule     string
		capacity v1.ResourceList
		health   []func() error
		message  string // empty: ready
	}{
		{"no complaint", all, []func() error{ok}, ""},
		{"nobody asked", all, nil, ""},
		{"one complaint", all, []func() error{ok, bad}, "engine is away"},
		{"several in their order, each once", all, []func() error{bad, func() error { return errors.New("no network") }, bad}, "[engine is away, no network]"},
		{"no capacity", list("cpu", "1"), []func() error{ok}, "missing node capacity for resources: memory, pods"},
		{"no capacity either", nil, []func() error{bad}, "[engine is away, missing node capacity for resources: cpu, memory, pods]"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			n := &v1.Node{Status: v1.NodeStatus{Capacity: c.capacity}}
			apply(t, n, Ready(c.health...))
			got := condition(n, v1.NodeReady)
			want := v1.NodeCondition{
				Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
				LastHeartbeatTime: got.LastHeartbeatTime, LastTransitionTime: got.LastHeartbeatTime,
			}
			if c.message != "" {
				want.Status, want.Reason, want.Message = v1.ConditionFalse, "KubeletNotReady", c.message
			}
			if *got != want || got.LastHeartbeatTime.Nanosecond() != 0 {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func TestPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &v1.Node{}
		apply(t, n, Pressure(nil))
		made := n.Status.Conditions[0].LastTransitionTime
		time.Sleep(time.Minute)
		apply(t, n, Pressure(func() []v1.NodeConditionType { return []v1.NodeConditionType{v1.NodePIDPressure} }))
		var got []string
		for _, c := range n.Status.Conditions {
			if (c.LastTransitionTime == made) == (c.Type == v1.NodePIDPressure) || c.LastHeartbeatTime == made {
				t.Errorf("times of %+v", c)
			}
			got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		want := []string{
			"MemoryPressure=False KubeletHasSufficientMemory: kubelet has sufficient memory available",
			"DiskPressure=False KubeletHasNoDiskPressure: kubelet has no disk pressure",
			"PIDPressure=True KubeletHasInsufficientPID: kubelet has insufficient PID available",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

func TestEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var info runtime.Info
		failing := errors.New("socket is gone")
		err := failing
		e := NewEngine(func(context.Context) (runtime.Info, error) { return info, err })
		n := &v1.Node{}
		says := func(up, ready, network string) {
			t.Helper()
			for i, c := range []struct {
				ask  func() error
				want string
			}{{e.Up, up}, {e.Ready, ready}, {e.Network, network}} {
				got := c.ask()
				if got == nil && c.want != "" || got != nil && got.Error() != c.want {
					t.Errorf("%d: %v, want %q", i, got, c.want)
				}
			}
		}
		const early = "container runtime status check may not have completed yet"
		says(early, "", "network state unknown")
		if e.SetNode(t.Context(), n) == nil {
			t.Error("no error")
		}
		says(early, "", "network state unknown")

		err = nil
		info = runtime.Info{
			Name: "containerd", Version: "2.4.2", Ready: runtime.Condition{Reason: "Starting", Message: "wait"},
			Network: runtime.Condition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
		}
		apply(t, n, e.SetNode)
		const noNetwork = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
		says(early, "container runtime not ready: RuntimeReady=false reason:Starting message:wait", noNetwork)
		if n.Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.4.2" || n.Status.RuntimeHandlers != nil {
			t.Errorf("%+v", n.Status)
		}

		info.Ready = runtime.Condition{OK: true}
		info.Handlers = []runtime.Handler{{Name: "runc", RecursiveRO: true}, {UserNamespaces: true}}
		info.GroupsPolicy = true
		apply(t, n, e.SetNode)
		says("", "", noNetwork)
		h := n.Status.RuntimeHandlers
		if len(h) != 2 || h[0].Name != "" || !*h[0].Features.UserNamespaces || *h[0].Features.RecursiveReadOnlyMounts ||
			h[1].Name != "runc" || !*h[1].Features.RecursiveReadOnlyMounts || !*n.Status.Features.SupplementalGroupsPolicy {
			t.Errorf("%+v", n.Status)
		}

		info.Network.OK = true
		apply(t, n, e.SetNode)
		says("", "", "")
		err = failing
		time.Sleep(29 * time.Second)
		if e.SetNode(t.Context(), n) == nil {
			t.Error("no error")
		}
		says("", "", "")
		time.Sleep(time.Second)
		says("container runtime is down", "", "")
		if n.Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.4.2" {
			t.Error("the version is forgotten")
		}
	})
}

func TestCase_c143_500_images(t *testing.T) {
	for most, want := range map[int]int{50: 50, 0: 0, -1: 500, 10: 10} {
		n := &v1.Node{}
		apply(t, n, Images(manyImages(500), most))
		if len(n.Status.Images) != want {
			t.Errorf("most %d: %d images", most, len(n.Status.Images))
		}
		if !slices.IsSortedFunc(n.Status.Images, func(a, b v1.ContainerImage) int { return int(b.SizeBytes - a.SizeBytes) }) {
			t.Errorf("most %d: not the biggest first", most)
		}
	}
	same := []runtime.Image{{ID: "b", Tags: []string{"b"}, Size: 1}, {ID: "a", Tags: []string{"a"}, Size: 1}, {ID: "c", Tags: []string{"c"}, Size: 1}}
	want := biggest(same, 2)
	for range 10 {
		same = append(same[1:], same[0])
		if got := biggest(same, 2); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("another order for images of one size: %v, %v", got, want)
		}
	}
}

func TestCase_c144_an_image_of_3000_names(t *testing.T) {
	i := runtime.Image{ID: "i", Size: 1}
	for n := range 3000 {
		i.Tags = append(i.Tags, fmt.Sprintf("r.io/i:%d", 3000-n))
	}
	i.Digests = []string{"r.io/i@sha256:b", "r.io/i@sha256:a"}
	want := []string{"r.io/i@sha256:a", "r.io/i@sha256:b", "r.io/i:1", "r.io/i:10", "r.io/i:100"}
	if got := biggest([]runtime.Image{i}, 50); len(got) != 1 || !slices.Equal(got[0].Names, want) {
		t.Errorf("%v", got)
	}
}

func TestImagesThatCannotBeListedStay(t *testing.T) {
	n := &v1.Node{Status: v1.NodeStatus{Images: []v1.ContainerImage{{Names: []string{"a"}}}}}
	err := Images(func(context.Context) ([]runtime.Image, error) { return nil, errors.New("no") }, 50)(t.Context(), n)
	if err == nil || len(n.Status.Images) != 1 {
		t.Error(err, n.Status.Images)
	}
}

func TestInitial(t *testing.T) {
	n, err := Initial(Registration{
		Name: "n1", Hostname: "host-1", Labels: map[string]string{"team": "blue", v1.LabelArchStable: "odd"},
		Taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoExecute}}, Unschedulable: true, ProviderID: "x://1",
		ExternalCloud: true, AttachByOthers: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"kubernetes.io/hostname": "host-1", "kubernetes.io/os": goruntime.GOOS, "kubernetes.io/arch": "odd",
		"beta.kubernetes.io/os": goruntime.GOOS, "beta.kubernetes.io/arch": goruntime.GOARCH, "team": "blue",
	}
	if !equality.Semantic.DeepEqual(n.Labels, want) {
		t.Errorf("labels %v", n.Labels)
	}
	if n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" || !n.Spec.Unschedulable || n.Spec.ProviderID != "x://1" {
		t.Errorf("%+v", n)
	}
	if len(n.Spec.Taints) != 2 || n.Spec.Taints[1] != (v1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule}) {
		t.Errorf("taints %v", n.Spec.Taints)
	}
	for _, name := range []string{"", "Upper", "a_b", strings.Repeat("a", 254)} {
		if _, err := Initial(Registration{Name: name}); err == nil {
			t.Errorf("name %q: no error", name)
		}
	}
}

func TestCheckLabels(t *testing.T) {
	for key, fine := range map[string]bool{
		"team": true, "example.org/team": true, "kubernetes.io/os": true, "topology.kubernetes.io/zone": true,
		"node.kubernetes.io/role": true, "gpu.node.kubernetes.io/kind": true, "kubelet.kubernetes.io/x": true,
		"node-role.kubernetes.io/worker": false, "kubernetes.io/role": false, "k8s.io/x": false, "sub.k8s.io/x": false,
		"node-restriction.kubernetes.io/x": false, "mykubernetes.io/x": true, "notnode.kubernetes.io/x": false, "node.kubernetes.io/windows-build": true,
		"a/b/c": false, "": false, "-x": false,
	} {
		if err := CheckLabels(map[string]string{key: "v"}); (err == nil) != fine {
			t.Errorf("%q: %v", key, err)
		}
	}
	if err := CheckLabels(map[string]string{"a": "two words"}); err == nil {
		t.Error("a bad value: no error")
	}
}

func TestNodeName(t *testing.T) {
	for _, c := range []struct{ override, host, want string }{
		{"", "Host-1.Example.org", "host-1.example.org"}, {" N1\n", "host", "n1"}, {" ", "host\n", "host"}, {"", "", ""},
	} {
		if got, err := NodeName(c.override, c.host); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q %q: %q, %v", c.override, c.host, got, err)
		}
	}
}

// Labels of the agent's own are kept right; those that were given when the node was new are left to whoever changes them.
func TestCase_c150_labels_of_a_node_that_exists(t *testing.T) {
	register := func(labels map[string]string, taints ...v1.Taint) *v1.Node {
		n, err := Initial(Registration{Name: "n1", Labels: labels, Taints: taints, AttachByOthers: true})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	was := register(map[string]string{"team": "blue", "old": "1", "topology.kubernetes.io/zone": "a"}, v1.Taint{Key: "x"})
	was.Labels["theirs"] = "1"
	was.Spec.ProviderID = "cloud://1"
	is := Reconcile(register(map[string]string{"team": "red", "topology.kubernetes.io/zone": "b"}, v1.Taint{Key: "y"}), was, false)
	for key, want := range map[string]string{"team": "blue", "old": "1", "theirs": "1", "topology.kubernetes.io/zone": "b"} {
		if is.Labels[key] != want {
			t.Errorf("%s=%q, want %q", key, is.Labels[key], want)
		}
	}
	if !equality.Semantic.DeepEqual(is.Spec, was.Spec) {
		t.Errorf("spec %+v", is.Spec)
	}
}

func TestReconcile(t *testing.T) {
	initial := func(change func(*v1.Node)) *v1.Node {
		n, err := Initial(Registration{Name: "n1", AttachByOthers: true})
		if err != nil {
			t.Fatal(err)
		}
		n.Status.Capacity, n.Status.Allocatable = list("cpu", "1", "hugepages-2Mi", "0"), list("cpu", "1", "hugepages-2Mi", "0")
		if change != nil {
			change(n)
		}
		return n
	}
	devices := func(n *v1.Node) {
		n.Status.Capacity, n.Status.Allocatable = list("x.org/gpu", "2", "hugepages-1Gi", "1Gi"), list("x.org/gpu", "2", "hugepages-1Gi", "1Gi")
	}
	t.Run("one as it should be stays as it is", func(t *testing.T) {
		n := initial(nil)
		if got := Reconcile(n, n, false); !equality.Semantic.DeepEqual(n, got) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("volumes are attached by whom the agent says", func(t *testing.T) {
		with, without := initial(nil), initial(func(n *v1.Node) { n.Annotations = nil })
		if got := Reconcile(with, without, false); got.Annotations[annotationAttach] != "true" || without.Annotations != nil {
			t.Errorf("%v", got.Annotations)
		}
		if got := Reconcile(without, with, false); len(got.Annotations) != 0 {
			t.Errorf("%v", got.Annotations)
		}
	})
	t.Run("an empty label is none", func(t *testing.T) {
		got := Reconcile(initial(func(n *v1.Node) { n.Labels[v1.LabelHostname] = "" }), initial(nil), false)
		if _, ok := got.Labels[v1.LabelHostname]; ok {
			t.Errorf("%v", got.Labels)
		}
	})
	t.Run("devices stay when plugins go on, huge pages of other sizes go", func(t *testing.T) {
		got := Reconcile(initial(nil), initial(devices), false).Status
		if text(got.Capacity) != "x.org/gpu=2" || text(got.Allocatable) != "x.org/gpu=2" {
			t.Errorf("%s, %s", text(got.Capacity), text(got.Allocatable))
		}
	})
	t.Run("devices are zero when plugins start anew", func(t *testing.T) {
		got := Reconcile(initial(nil), initial(devices), true).Status
		if text(got.Capacity) != "x.org/gpu=0" || text(got.Allocatable) != "x.org/gpu=0" {
			t.Errorf("%s, %s", text(got.Capacity), text(got.Allocatable))
		}
	})
	t.Run("a node without sizes gets them", func(t *testing.T) {
		got := Reconcile(initial(nil), initial(func(n *v1.Node) { n.Status = v1.NodeStatus{} }), false).Status
		if text(got.Capacity) != "cpu=1 hugepages-2Mi=0" {
			t.Errorf("%s", text(got.Capacity))
		}
	})
	t.Run("capacity without allocatable", func(t *testing.T) {
		got := Reconcile(initial(func(n *v1.Node) { n.Status.Allocatable = nil }), initial(func(n *v1.Node) { devices(n); n.Status.Allocatable = nil }), true)
		if text(got.Status.Allocatable) != "x.org/gpu=0" {
			t.Errorf("%s", text(got.Status.Allocatable))
		}
	})
}
