package kubeapi

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func address(kind v1.NodeAddressType, a string) v1.NodeAddress {
	return v1.NodeAddress{Type: kind, Address: a}
}

func TestANodePatchMakesOneNodeTheOther(t *testing.T) {
	full := v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "5", Labels: map[string]string{"a": "1", "b": "2"}, Annotations: map[string]string{"x": "y"}, Finalizers: []string{"f"}},
		Spec:       v1.NodeSpec{PodCIDR: "10.0.0.0/24"},
		Status: v1.NodeStatus{
			Addresses:  []v1.NodeAddress{address(v1.NodeInternalIP, "10.0.0.1"), address(v1.NodeInternalIP, "fd00::1"), address(v1.NodeHostName, "n1")},
			Conditions: []v1.NodeCondition{{Type: "KernelDeadlock", Status: "False"}, {Type: v1.NodeReady, Status: "True"}},
			Images:     []v1.ContainerImage{{Names: []string{"a"}, SizeBytes: 5}},
		},
	}
	for name, change := range map[string]func(n *v1.Node){
		"nothing":                        func(*v1.Node) {},
		"the spec, which is not ours":    func(n *v1.Node) { n.Spec.Unschedulable = true; n.Finalizers = nil; n.ResourceVersion = "9" },
		"labels":                         func(n *v1.Node) { n.Labels = map[string]string{"a": "2", "c": "3"} },
		"annotations gone":               func(n *v1.Node) { n.Annotations = nil },
		"one of two addresses of a type": func(n *v1.Node) { n.Status.Addresses = append(n.Status.Addresses[:1], n.Status.Addresses[2:]...) },
		"addresses in another order": func(n *v1.Node) {
			n.Status.Addresses[0], n.Status.Addresses[1] = n.Status.Addresses[1], n.Status.Addresses[0]
		},
		"an address of a type that is there": func(n *v1.Node) {
			n.Status.Addresses = slices.Insert(n.Status.Addresses, 2, address(v1.NodeInternalIP, "10.0.0.9")) // a server puts equal types side by side
		},
		"no addresses": func(n *v1.Node) { n.Status.Addresses = nil },
		"conditions":   func(n *v1.Node) { n.Status.Conditions[1].Status = "False" },
		"images":       func(n *v1.Node) { n.Status.Images = nil },
		"addresses and the rest": func(n *v1.Node) {
			n.Status.Addresses, n.Status.Images, n.Labels = n.Status.Addresses[2:], nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := full.DeepCopy()
			change(to)
			patch, err := nodePatch(&full, to)
			if err != nil {
				t.Fatal(err)
			}
			if name == "nothing" || name == "the spec, which is not ours" {
				if patch != nil {
					t.Errorf("%s", patch)
				}
				return
			}
			was, err := json.Marshal(full)
			if err != nil {
				t.Fatal(err)
			}
			is, err := strategicpatch.StrategicMergePatch(was, patch, v1.Node{})
			if err != nil {
				t.Fatal(err)
			}
			var got v1.Node
			if err := json.Unmarshal(is, &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Labels) == 0 {
				got.Labels = nil
			}
			if len(got.Status.Addresses) == 0 {
				got.Status.Addresses = nil
			}
			if !reflect.DeepEqual(got.Status, to.Status) || !reflect.DeepEqual(got.Labels, to.Labels) || len(got.Annotations) != len(to.Annotations) {
				t.Errorf("%s\nmakes %+v", patch, got.Status)
			}
		})
	}
}

func TestANodeIsUpdated(t *testing.T) {
	inBubble(t, func(b *bench) {
		from := b.node()
		from.Status.Addresses = []v1.NodeAddress{address(v1.NodeInternalIP, "10.0.0.1"), address(v1.NodeInternalIP, "10.0.0.2")}
		from.Spec.PodCIDR = "10.1.0.0/24"
		from = b.server.Put(from).(*v1.Node)
		to := from.DeepCopy()
		to.Status.Addresses = to.Status.Addresses[1:]
		to.Labels = map[string]string{v1.LabelHostname: "n1"}
		to.Spec.PodCIDR = ""
		if err := b.client.UpdateNode(b.Context(), from, to); err != nil {
			t.Fatal(err)
		}
		if err := b.client.UpdateNode(b.Context(), to, to); err != nil {
			t.Error(err)
		}
		b.wantCalls("patch nodes/status n1")
		is, err := b.client.Get(b.Context())
		if err != nil || len(is.Status.Addresses) != 1 || is.Labels[v1.LabelHostname] != "n1" || is.Spec.PodCIDR == "" || is.ManagedFields != nil {
			t.Errorf("%+v, %v", is, err)
		}
		b.server.Remove(is)
		if err := b.client.UpdateNode(b.Context(), from, to); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("one that is gone: %v", err)
		}
		if _, err := b.client.Get(b.Context()); !errors.Is(err, runtime.ErrNotFound) || !apierrors.IsNotFound(err) {
			t.Errorf("one that is gone: %v", err)
		}
	})
}

func TestRegister(t *testing.T) {
	mine := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"new": "yes"}}}
	forbid := func(b *bench) {
		b.server.Answer(func(c apifake.Call) *apifake.Answer {
			if c.Verb == "create" {
				return &apifake.Answer{Err: apierrors.NewForbidden(v1.Resource("nodes"), "n1", errors.New("no"))}
			}
			return nil
		})
	}
	for name, c := range map[string]struct {
		before func(b *bench)
		isNew  bool
		fails  func(error) bool
	}{
		"a new one":                            {func(*bench) {}, true, nil},
		"one that is there":                    {func(b *bench) { b.node() }, false, nil},
		"forbidden, but there":                 {func(b *bench) { b.node(); forbid(b) }, false, nil},
		"forbidden, and not there":             {forbid, false, apierrors.IsForbidden},
		"the server is down":                   {func(b *bench) { b.server.SetDown(true) }, false, func(err error) bool { return err != nil }},
		"the server takes longer than allowed": {func(b *bench) { b.server.Answer(always(apifake.Answer{Delay: 1e15})) }, false, func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				c.before(b)
				n, err := b.client.Register(b.Context(), mine)
				if c.fails != nil {
					if !c.fails(err) {
						t.Errorf("%v", err)
					}
					return
				}
				if err != nil || n.UID == "" || (n.Labels["new"] == "yes") != c.isNew || n.ManagedFields != nil {
					t.Errorf("%+v, %v", n, err)
				}
			})
		})
	}
	inBubble(t, func(b *bench) {
		if _, err := b.client.Register(b.Context(), &v1.Node{}); err == nil {
			t.Error("another's node is registered")
		}
	})
}

func TestTheNodeIsFollowed(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.begin(b.client.Run)
		b.settle()
		if b.client.Node() != nil {
			t.Error("a node that is not there")
		}
		first := b.node()
		b.settle()
		if n := b.client.Node(); n == nil || n.UID != first.UID || n.ManagedFields != nil {
			t.Errorf("%+v", n)
		}
		b.server.SetDown(true)
		b.settle()
		if b.client.Node() == nil {
			t.Error("it is forgotten while the server is down")
		}
	})
}
