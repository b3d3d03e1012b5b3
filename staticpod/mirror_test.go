package staticpod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// static is a static pod as the roster shows it; its version is its uid.
func static(name, version string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: name, UID: types.UID(version),
			Annotations: map[string]string{podspec.SourceAnnotation: "file", podspec.HashAnnotation: version},
		},
		Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "etcd"}}},
	}
}

func ending(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return p
}

// mirrorPod is a mirror pod as the API server shows it.
func mirrorPod(name, version, uid string) *v1.Pod {
	p := static(name, version)
	p.UID = types.UID(uid)
	p.Annotations[podspec.MirrorAnnotation] = version
	return p
}

func TestNextActForAMirror(t *testing.T) {
	now := time.Unix(1000, 0)
	v1, v2 := static("etcd", "v1"), static("etcd", "v2")
	old := mirrorPod("etcd", "v1", "m1")
	in := func(p *v1Pod, phase v1Phase) *v1Pod {
		p = p.DeepCopy()
		p.Status.Phase, p.Status.StartTime = phase, &metav1.Time{Time: now}
		return p
	}
	runs, unknown := in(v1, "Running"), in(v1, "Pending")
	unknown.Status.StartTime = nil
	for _, tt := range []struct {
		name      string
		record    record
		couple    couple
		shown     *v1Pod
		removable bool
		del       bool
		create    *v1Pod
		wait      time.Duration
	}{
		{name: "a pod without a mirror gets one", couple: couple{wanted: v1}, create: v1},
		{name: "a right mirror is left alone", couple: couple{wanted: v1}, shown: old},
		{name: "a mirror of a life that is over goes when another has begun", couple: couple{wanted: runs}, shown: in(old, "Failed"), del: true, create: runs},
		{name: "it stays until it is known how the pod is", couple: couple{wanted: unknown}, shown: in(old, "Failed")},
		{name: "it stays while the pod is over", couple: couple{wanted: in(v1, "Succeeded")}, shown: in(old, "Succeeded")},
		{name: "a mirror of another version is deleted, then made", couple: couple{wanted: v2}, shown: old, del: true, create: v2},
		{name: "a mirror that is being deleted goes at once and is made again", couple: couple{wanted: v1}, shown: ending(old), del: true, create: v1},
		{name: "while the old version ends its mirror stays", couple: couple{wanted: v2, ending: ending(v1)}, shown: old},
		{name: "while the old version ends no mirror is made", couple: couple{wanted: v2, ending: ending(v1)}},
		{name: "a mirror of neither version goes, none is made", couple: couple{wanted: v2, ending: ending(v1)}, shown: mirrorPod("etcd", "v0", "m0"), del: true},
		{name: "a pod that ends for good keeps its mirror until then", couple: couple{ending: ending(v1)}, shown: old},
		{name: "an orphan goes", shown: old, removable: true, del: true},
		{name: "an orphan stays until all is known", shown: old},
		{name: "nothing is nothing"},
		{name: "what was made is waited for", record: record{hash: "v1", made: true, due: now.Add(9 * time.Second)}, couple: couple{wanted: v1}, wait: 9 * time.Second},
		{name: "what was made and never shown is made again", record: record{hash: "v1", made: true, due: now}, couple: couple{wanted: v1}, create: v1},
		{name: "what was deleted may be shown for a while", record: record{hash: "v1", gone: "m1", still: now.Add(time.Second)}, couple: couple{wanted: v1}, shown: ending(old), create: v1, wait: time.Second},
		{name: "what was deleted and stays is deleted again", record: record{hash: "v1", gone: "m1", still: now}, couple: couple{wanted: v1}, shown: ending(old), del: true, create: v1},
		{name: "after a failure time passes first", record: record{hash: "v1", acts: 3, last: now, due: now.Add(4 * time.Second)}, couple: couple{wanted: v1}, wait: 4 * time.Second},
		{name: "another version need not wait", record: record{hash: "v1", acts: 3, last: now, due: now.Add(4 * time.Second)}, couple: couple{wanted: v2}, create: v2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, wait := tt.record.next(tt.couple, tt.shown, tt.removable, now)
			if (a.del != nil) != tt.del || a.create != tt.create || wait != tt.wait {
				t.Errorf("delete %v, create %v, wait %v; want %v, %v, %v", a.del, a.create, wait, tt.del, tt.create, tt.wait)
			}
			if tt.del && a.del.UID != tt.shown.UID {
				t.Errorf("deletes %s", a.del.UID)
			}
		})
	}
}

type (
	v1Pod   = v1.Pod
	v1Phase = v1.PodPhase
)

func TestTheMirrorIsACopyThatSaysSo(t *testing.T) {
	p := static("etcd", "v1")
	p.Finalizers, p.Labels = []string{"example.com/f"}, map[string]string{"a": "b"}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Other"}}
	p.Annotations["mine"] = "kept"
	p.Status = v1.PodStatus{Phase: v1.PodRunning}
	p.Spec.Priority, p.Spec.PreemptionPolicy = new(int32(2_000_001_000)), new(v1.PreemptNever)
	before := p.DeepCopy()
	m := mirror(p, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}})
	if !mirrors(m, p) || m.UID != "" || m.Status.Phase != "" || m.Labels["a"] != "b" || m.Annotations["mine"] != "kept" || m.Spec.NodeName != "n1" {
		t.Errorf("mirror %+v", m)
	}
	if m.Annotations[podspec.SourceAnnotation] != "file" || m.Annotations[podspec.HashAnnotation] != "v1" || m.Annotations[podspec.MirrorAnnotation] != "v1" {
		t.Errorf("annotations %v", m.Annotations)
	}
	if len(m.OwnerReferences) != 1 {
		t.Fatalf("owners %v", m.OwnerReferences)
	}
	// Field report kubernetes/website#46859 (kubernetes/kubernetes#133535): a server refuses a priority that it has not made of the class.
	if m.Spec.Priority != nil || m.Spec.PreemptionPolicy != nil || p.Spec.Priority == nil {
		t.Errorf("priority %v, policy %v", m.Spec.Priority, m.Spec.PreemptionPolicy)
	}
	o := m.OwnerReferences[0]
	if o.APIVersion != "v1" || o.Kind != "Node" || o.Name != "n1" || o.UID != "node-uid" || o.Controller == nil || !*o.Controller || o.BlockOwnerDeletion != nil {
		t.Errorf("owner %+v", o)
	}
	if !before.DeletionTimestamp.Equal(p.DeletionTimestamp) || len(p.Annotations) != len(before.Annotations) || p.OwnerReferences[0].Kind != "Other" {
		t.Error("the static pod was changed")
	}
}

func TestOnlyStaticPodsHaveMirrors(t *testing.T) {
	bound := static("web", "u1")
	bound.Annotations = map[string]string{podspec.SourceAnnotation: "api"}
	plain := static("plain", "u2")
	plain.Annotations = nil
	got := couples([]*v1.Pod{bound, plain, mirrorPod("etcd", "v1", "m1"), static("etcd", "v1"), ending(static("etcd", "v0"))})
	if len(got) != 1 || got["etcd_kube-system"].wanted.UID != "v1" || got["etcd_kube-system"].ending.UID != "v0" {
		t.Errorf("couples %v", got)
	}
	runs := static("etcd", "v2")
	runs.Status.StartTime = &metav1.Time{}
	for _, pods := range [][]*v1.Pod{{static("etcd", "v1"), runs}, {runs, static("etcd", "v1")}} {
		if got := couples(pods)["etcd_kube-system"].wanted; got != runs {
			t.Errorf("of two with one name: %s, want the one that runs", got.UID)
		}
	}
}
