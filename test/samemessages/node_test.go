package samemessages

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/test/agent"
)

// Both agents register the same Node object, and keep it the same.
func TestSameNode(t *testing.T) {
	kubelet := upstream(t)
	for name, how := range map[string]struct {
		settings map[string]any
		flags    []string
	}{
		"little said": {},
		"reserved and tainted": {
			settings: map[string]any{
				"maxPods": 17, "podsPerCore": 5, "providerID": "cloud://zone/machine",
				"systemReserved":     map[string]string{"cpu": "101m", "memory": "64Mi", "ephemeral-storage": "1Gi", "pid": "100"},
				"kubeReserved":       map[string]string{"cpu": "50m", "memory": "32Mi"},
				"evictionHard":       map[string]string{"memory.available": "100Mi", "nodefs.available": "1%"},
				"registerWithTaints": []map[string]string{{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"}},
			},
			flags: []string{"--node-labels=example.com/a=b,kubernetes.io/os=linux,node.kubernetes.io/instance-type=small,topology.kubernetes.io/zone=z"},
		},
		"less than is asked for": {
			settings: map[string]any{
				"podsPerCore": 1, "nodeStatusMaxImages": 0, "registerNode": true,
				"evictionHard": map[string]string{"memory.available": "1Mi", "nodefs.inodesFree": "0%", "nodefs.available": "0%"}, "localStorageCapacityIsolation": false,
			},
			flags: []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got string
			t.Run("agents", func(t *testing.T) {
				theirs, ours := setUp(t, kubelet, how.settings, nil, how.flags...), setUp(t, agent.Program(t), how.settings, nil, how.flags...)
				for start := time.Now(); time.Since(start) < *patience/3; time.Sleep(500 * time.Millisecond) {
					want, got = theirs.node(t), ours.node(t)
					if want == got && strings.Contains(want, "reason: KubeletReady\n") {
						break
					}
				}
			})
			if d := diff(t, want, got); d != "" || !strings.Contains(want, "reason: KubeletReady\n") {
				t.Errorf("the kubelet (-) and nodeagent (+) differ:\n%s", d)
			}
		})
	}
}

// node is the Node object of an agent, without what is never the same.
func (s *stage) node(t *testing.T) string {
	t.Helper()
	n, ok := apifake.Get(s.api, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	if !ok {
		return "there is none\n"
	}
	n = n.DeepCopy()
	n.UID, n.ResourceVersion, n.CreationTimestamp, n.ManagedFields = "", "", metav1.Time{}, nil
	n.Status.DaemonEndpoints.KubeletEndpoint.Port -= int32(s.port)
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime, n.Status.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	// Passing WebSockets through is theirs alone; images of one size are in no order: docs/differences.md.
	n.Status.DeclaredFeatures = slices.DeleteFunc(n.Status.DeclaredFeatures, func(f string) bool { return f == "ExtendWebSocketsToKubelet" })
	for i := range n.Status.Images {
		slices.Sort(n.Status.Images[i].Names)
	}
	slices.SortFunc(n.Status.Images, func(a, b v1.ContainerImage) int { return slices.Compare(a.Names, b.Names) })
	text, err := yaml.Marshal(n)
	must(t, err)
	return string(text)
}
