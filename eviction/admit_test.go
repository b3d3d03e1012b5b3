package eviction_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestAdmit(t *testing.T) {
	tolerating := func(tol v1.Toleration) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{tol} }
	}
	memory, both := []string{"memory"}, []string{"memory", "disk"}
	for name, c := range map[string]struct {
		pressed []string
		edit    func(*v1.Pod)
		here    bool
		refused bool
	}{
		"nothing presses":                             {},
		"memory, best effort":                         {pressed: memory, refused: true},
		"memory, it requests some":                    {pressed: memory, edit: requests("memory", "1Mi")},
		"memory, tolerated":                           {pressed: memory, edit: tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure", Operator: "Exists", Effect: "NoSchedule"})},
		"memory, everything tolerated":                {pressed: memory, edit: tolerating(v1.Toleration{Operator: "Exists"})},
		"memory, tolerated with an empty value":       {pressed: memory, edit: tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure"})},
		"memory, tolerated with another value":        {pressed: memory, edit: tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure", Value: "x"}), refused: true},
		"memory, tolerated for another effect":        {pressed: memory, edit: tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure", Operator: "Exists", Effect: "NoExecute"}), refused: true},
		"disk too, it requests memory":                {pressed: both, edit: requests("memory", "1Mi"), refused: true},
		"disk alone, tolerated":                       {pressed: []string{"disk"}, edit: tolerating(v1.Toleration{Operator: "Exists"}), refused: true},
		"disk, static":                                {pressed: both, edit: annotated("kubernetes.io/config.source", "file")},
		"disk, critical":                              {pressed: both, edit: prio(2_000_000_000)},
		"a resize of one that is here is not stopped": {pressed: both, here: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.capacity[eviction.NodeFsAvailable] = 100
			if slices.Contains(c.pressed, "memory") {
				n.taken[eviction.MemoryAvailable] = 950 * mi
			}
			if slices.Contains(c.pressed, "disk") {
				n.taken[eviction.NodeFsAvailable] = 95
			}
			m := n.manager(parse(t, list{"memory.available": "100Mi", "nodefs.available": "10%"}, nil, nil, nil), nil)
			n.check(m, "")
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
			if c.edit != nil {
				c.edit(p)
			}
			var others []*v1.Pod
			if c.here {
				others = append(others, p)
			}
			err := m.Admit(t.Context(), p, others)
			r, _ := errors.AsType[*runtime.Rejection](err)
			if (r != nil) != c.refused {
				t.Fatal(err)
			}
			if r != nil && (r.Reason != "Evicted" || !strings.HasPrefix(r.Message, "The node had condition: [")) {
				t.Error(r)
			}
		})
	}
}
