package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

func condition(kind v1.PodConditionType, is v1.ConditionStatus) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: is}
}

// running is a status as the node makes it.
func running(ready v1.ConditionStatus) v1.PodStatus {
	return v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.1.0.7", PodIPs: []v1.PodIP{{IP: "10.1.0.7"}},
		Conditions:        []v1.PodCondition{condition(v1.PodInitialized, "True"), condition(v1.PodReady, ready), condition(v1.ContainersReady, ready), condition(v1.PodScheduled, "True")},
		ContainerStatuses: []v1.ContainerStatus{{Name: "app", Ready: ready == "True", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
	}
}

func (b *bench) update(s *Sink, p *v1.Pod, st v1.PodStatus) {
	b.Helper()
	if err := s.UpdateStatus(b.Context(), p, st); err != nil {
		b.Error(err)
	}
}

func (b *bench) now(p *v1.Pod) *v1.Pod {
	b.Helper()
	is, ok := apifake.Get(b.server, p)
	if !ok {
		b.Fatalf("pod %s is gone", p.Name)
	}
	return is
}

func statusOf(p *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func TestAChangeIsOneRequest(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := b.put(pod("web"))
		s := &Sink{Client: b.client}
		b.update(s, p, running("False"))
		b.wantCalls("patch pods/status default/web")
		b.update(s, p, running("False"))
		b.wantCalls()
		b.update(s, p, running("True")) // the source has not shown the first change yet
		b.wantCalls("patch pods/status default/web")
		is := b.now(p)
		if is.Status.Phase != v1.PodRunning || statusOf(is, v1.PodReady) != "True" || is.Status.PodIP != "10.1.0.7" {
			t.Errorf("%+v", is.Status)
		}
		b.update(s, is, running("True")) // now it has
		b.wantCalls()
		if len(s.last) != 0 {
			t.Errorf("%d answers kept that the source has shown", len(s.last))
		}
	})
}

func TestTheRequestNamesTheUIDAndWithAnotherPhaseTheVersion(t *testing.T) {
	p := pod("web")
	p.UID, p.ResourceVersion = "u1", "7"
	for _, c := range []struct {
		name string
		to   v1.PodStatus
		want string
	}{
		{"equal", p.Status, ""},
		{"the same phase", v1.PodStatus{Phase: v1.PodPending, PodIP: "1.2.3.4"}, `{"uid":"u1"}`},
		{"another phase", v1.PodStatus{Phase: v1.PodRunning}, `{"resourceVersion":"7","uid":"u1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			patch, err := statusPatch(p, c.to)
			if err != nil {
				t.Fatal(err)
			}
			var m struct{ Metadata json.RawMessage }
			if patch != nil {
				if err := json.Unmarshal(patch, &m); err != nil {
					t.Fatal(err)
				}
			}
			if string(m.Metadata) != c.want {
				t.Errorf("%s", patch)
			}
		})
	}
}

// What others write while our view is old stays.
func TestConditionsOfOthersAreNeverTouched(t *testing.T) {
	inBubble(t, func(b *bench) {
		shown := pod("web")
		shown.Status.Conditions = []v1.PodCondition{condition("example.com/gate", "False"), condition("example.com/leaves", "True"), condition(v1.PodScheduled, "True")}
		shown = b.put(shown)
		theirs := shown.DeepCopy() // the source has not shown this
		theirs.Status.Conditions = []v1.PodCondition{condition(v1.PodScheduled, "True"), condition("example.com/gate", "True"), condition("example.com/new", "Unknown")}
		theirs.Status.NominatedNodeName = "elsewhere"
		theirs.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}}
		b.put(theirs)
		s := &Sink{Client: b.client}
		b.update(s, shown, running("True"))
		b.update(s, shown, running("False"))
		is := b.now(shown)
		for kind, want := range map[v1.PodConditionType]v1.ConditionStatus{
			"example.com/gate": "True", "example.com/new": "Unknown", "example.com/leaves": "",
			v1.PodReady: "False", v1.PodInitialized: "True", v1.PodScheduled: "True",
		} {
			if got := statusOf(is, kind); got != want {
				t.Errorf("%s is %q, wanted %q", kind, got, want)
			}
		}
		if is.Status.NominatedNodeName != "elsewhere" || len(is.Status.ResourceClaimStatuses) != 1 {
			t.Errorf("%+v", is.Status)
		}
	})
}

// Somebody else ended the pod, and our view is old.
func TestATerminalPhaseNeverGoesBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		shown := b.put(pod("web"))
		ended := shown.DeepCopy()
		ended.Status.Phase, ended.Status.Reason = v1.PodFailed, "Evicted"
		ended = b.put(ended)
		s := &Sink{Client: b.client}
		b.update(s, shown, running("True"))
		is := b.now(shown)
		if is.Status.Phase != v1.PodFailed || is.Status.Reason != "Evicted" || statusOf(is, v1.PodReady) == "True" || is.Status.PodIP == "" {
			t.Errorf("%+v", is.Status)
		}
		b.wantCalls("patch pods/status default/web", "get pods default/web", "patch pods/status default/web")
		b.update(s, ended, v1.PodStatus{Phase: v1.PodSucceeded})
		if is := b.now(shown); is.Status.Phase != v1.PodFailed {
			t.Errorf("then: %s", is.Status.Phase)
		}
	})
}

// Field report: a comment in kubernetes/kubernetes#83705: a machine went down, and while init containers ran once more the server
// refused each status of their pod.
func TestAnInitContainerThatRunsOnceMoreKeepsNoStatusBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		web := pod("web")
		web.Spec.RestartPolicy, web.Spec.InitContainers = v1.RestartPolicyOnFailure, []v1.Container{{Name: "init"}}
		s := &Sink{Client: b.client}
		done := v1.ContainerStatus{Name: "init", Ready: true, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}
		st := running("True")
		st.InitContainerStatuses = []v1.ContainerStatus{done}
		p := b.put(web)
		b.update(s, p, st)
		again := running("False")
		again.InitContainerStatuses = []v1.ContainerStatus{{Name: "init", RestartCount: 1, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		b.update(s, p, again)
		is := b.now(p).Status
		if got := is.InitContainerStatuses[0]; is.ContainerStatuses[0].Ready || got.Ready || got.RestartCount != 1 || got.State.Terminated == nil {
			t.Errorf("the server is told %+v, %+v", is.ContainerStatuses, got)
		}
	})
}

func TestCase_c078_what_others_wrote_over_our_status_is_corrected(t *testing.T) {
	inBubble(t, func(b *bench) {
		s := &Sink{Client: b.client}
		p := b.put(pod("web"))
		b.update(s, p, running("True"))
		theirs := b.now(p)
		for i := range theirs.Status.Conditions {
			if c := &theirs.Status.Conditions[i]; c.Type == v1.PodReady {
				c.Status, c.Reason = v1.ConditionFalse, "NodeNotReady"
			}
		}
		shown := b.put(theirs)
		b.calls()
		b.update(s, shown, running("True"))
		b.wantCalls("patch pods/status default/web")
		if is := b.now(p); statusOf(is, v1.PodReady) != "True" {
			t.Errorf("%+v", is.Status.Conditions)
		}
	})
}

func TestAPodThatIsGoneOrReplaced(t *testing.T) {
	inBubble(t, func(b *bench) {
		s := &Sink{Client: b.client}
		p := b.put(pod("web"))
		b.update(s, p, running("False"))
		b.server.Remove(p)
		err := s.UpdateStatus(b.Context(), p, running("True"))
		if _, ok := errors.AsType[*apierrors.StatusError](err); !errors.Is(err, runtime.ErrNotFound) || !ok || !strings.Contains(err.Error(), "default/web") {
			t.Errorf("gone: %v", err)
		}
		next := b.put(pod("web"))
		if err := s.UpdateStatus(b.Context(), p, running("True")); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("replaced: %v", err)
		}
		dying := p.DeepCopy()
		dying.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if err := s.Finished(b.Context(), dying); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("delete of one that is replaced: %v", err)
		}
		if is := b.now(next); is.ResourceVersion != next.ResourceVersion {
			t.Errorf("the next one was touched: %+v", is)
		}
		if len(s.last) != 0 {
			t.Errorf("%d answers kept", len(s.last))
		}
	})
}

func TestAConflictIsReadAgainAndTheRestIsSent(t *testing.T) {
	inBubble(t, func(b *bench) {
		s := &Sink{Client: b.client}
		p := b.put(pod("web"))
		label := func() {
			theirs := b.now(p)
			theirs.Labels = map[string]string{"at": theirs.ResourceVersion}
			b.put(theirs)
		}
		label()
		b.update(s, p, running("True")) // Pending to Running, seen with an old version
		b.wantCalls("patch pods/status default/web", "get pods default/web", "patch pods/status default/web")
		if is := b.now(p); is.Status.Phase != v1.PodRunning || is.Labels == nil {
			t.Errorf("%+v", is)
		}

		// One that changes under our hands each time is left to the next try.
		b.server.Answer(func(c apifake.Call) *apifake.Answer {
			if c.Verb == "patch" {
				label()
			}
			return nil
		})
		if err := s.UpdateStatus(b.Context(), p, v1.PodStatus{Phase: v1.PodSucceeded}); !apierrors.IsConflict(err) || errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("%v", err)
		}
		b.server.Answer(nil)
		b.update(s, p, v1.PodStatus{Phase: v1.PodSucceeded})
		if is := b.now(p); is.Status.Phase != v1.PodSucceeded {
			t.Errorf("%s", is.Status.Phase)
		}
	})
}

func TestErrorsOfTheServerAreHandedOn(t *testing.T) {
	inBubble(t, func(b *bench) {
		s := &Sink{Client: b.client}
		p := b.put(pod("web"))
		b.server.Answer(always(apifake.Answer{Err: apierrors.NewForbidden(v1.Resource("pods"), "web", errors.New("not yours"))}))
		err := s.UpdateStatus(b.Context(), p, running("True"))
		if !apierrors.IsForbidden(err) || errors.Is(err, runtime.ErrNotFound) || !strings.HasPrefix(err.Error(), "patch pods default/web: ") {
			t.Errorf("%v", err)
		}
		if errors.Is(err, status.ErrRefused) {
			t.Errorf("who may not write now may later: %v", err)
		}
		b.server.Answer(always(apifake.Answer{Err: apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web", nil)}))
		if err = s.UpdateStatus(b.Context(), p, running("True")); !errors.Is(err, status.ErrRefused) || !apierrors.IsInvalid(err) {
			t.Errorf("%v", err)
		}
		b.server.Answer(nil)
		b.server.SetDown(true)
		if err := s.UpdateStatus(b.Context(), p, running("True")); err == nil || errors.Is(err, runtime.ErrNotFound) || errors.Is(err, status.ErrRefused) {
			t.Errorf("%v", err)
		}
		b.server.SetDown(false)
		b.server.Answer(always(apifake.Answer{Delay: time.Hour}))
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := s.UpdateStatus(ctx, p, running("True")); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// It was done, but we do not know.
func TestAnAnswerThatIsLostDoesNoHarm(t *testing.T) {
	for _, bytes := range []int{0, 50} {
		inBubble(t, func(b *bench) {
			s := &Sink{Client: b.client}
			p := b.put(pod("web"))
			b.server.Answer(always(apifake.Answer{Lost: true, Bytes: bytes}))
			if err := s.UpdateStatus(b.Context(), p, running("True")); err == nil {
				t.Error("it is well")
			}
			b.server.Answer(nil)
			b.update(s, p, running("True"))
			if is := b.now(p); is.Status.Phase != v1.PodRunning || len(is.Status.Conditions) != 4 {
				t.Errorf("%+v", is.Status)
			}
		})
	}
}

func TestSlowDownIsObeyed(t *testing.T) {
	inBubble(t, func(b *bench) {
		s := &Sink{Client: b.client}
		p := b.put(pod("web"))
		refused := false
		b.server.Answer(func(apifake.Call) *apifake.Answer {
			if !refused {
				refused = true
				return &apifake.Answer{Err: apierrors.NewTooManyRequests("later", 7)}
			}
			return nil
		})
		begin := time.Now()
		b.update(s, p, running("True"))
		if took := time.Since(begin); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("sent after %v", took)
		}
	})
}

func TestAStaticPodIsToldThroughItsMirror(t *testing.T) {
	inBubble(t, func(b *bench) {
		static := pod("etcd-n1")
		static.UID, static.Annotations = "static", map[string]string{podspec.SourceAnnotation: "file"}
		var mirror *v1.Pod
		s := &Sink{Client: b.client, Mirror: func(p *v1.Pod) *v1.Pod {
			if p.UID != static.UID {
				t.Errorf("asked for %s", p.UID)
			}
			return mirror
		}}
		b.update(s, static, running("True"))
		b.wantCalls()
		for range 3 { // and each time it is made anew
			mirror = b.put(pod("etcd-n1"))
			b.update(s, static, running("True"))
			b.update(s, static, running("True"))
			b.wantCalls("patch pods/status default/etcd-n1")
			if is := b.now(mirror); statusOf(is, v1.PodReady) != "True" {
				t.Errorf("%+v", is.Status)
			}
			b.server.Remove(mirror)
		}
		if len(s.last) > 1 {
			t.Errorf("%d answers kept for one pod", len(s.last))
		}
		static.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if err := s.Finished(b.Context(), static); err != nil {
			t.Error(err)
		}
		b.wantCalls()
		if len(s.last) != 0 {
			t.Errorf("%d answers kept", len(s.last))
		}
		if err := (&Sink{Client: b.client}).UpdateStatus(b.Context(), static, running("True")); err != nil {
			t.Error(err)
		}
	})
}

func TestFinishedDeletesWhatIsAskedToGo(t *testing.T) {
	inBubble(t, func(b *bench) {
		s := &Sink{Client: b.client}
		stays := b.put(pod("job"))
		if err := s.Finished(b.Context(), stays); err != nil {
			t.Error(err)
		}
		b.wantCalls()
		b.server.Delete(stays)
		if err := s.Finished(b.Context(), b.now(stays)); err != nil {
			t.Error(err)
		}
		b.wantCalls("delete pods default/job")
		if _, there := apifake.Get(b.server, stays); there {
			t.Error("it is still there")
		}
		stays.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if err := s.Finished(b.Context(), stays); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("one that is gone: %v", err)
		}
	})
}

func TestMirrors(t *testing.T) {
	inBubble(t, func(b *bench) {
		m := pod("etcd-n1")
		m.Annotations = map[string]string{podspec.MirrorAnnotation: "hash"}
		for range 2 {
			if err := b.client.CreateMirror(b.Context(), m); err != nil {
				t.Error(err)
			}
		}
		is := b.now(m)
		if err := b.client.DeleteMirror(b.Context(), m.Namespace, m.Name, "another"); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("another uid: %v", err)
		}
		for _, want := range []error{nil, runtime.ErrNotFound} {
			if err := b.client.DeleteMirror(b.Context(), m.Namespace, m.Name, is.UID); !errors.Is(err, want) {
				t.Errorf("%v, wanted %v", err, want)
			}
		}
	})
}

// A pod's whole life, from bound to gone, and what it costs.
func TestRequestsOfOnePod(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		d, _ := b.source()
		s := &Sink{Client: b.client}
		b.settle()
		b.server.Calls()
		p := b.put(pod("web"))
		tell := func(st v1.PodStatus) {
			b.settle()
			b.update(s, d.newest()[0], st)
		}
		tell(v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{condition(v1.PodReady, "False")}})
		tell(running("False"))
		tell(running("True"))
		b.server.Delete(p)
		b.settle()
		over := running("False")
		over.Phase = v1.PodSucceeded
		over.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
		tell(over)
		if err := s.Finished(b.Context(), d.newest()[0]); err != nil {
			t.Error(err)
		}
		b.settle()
		if d.count() == 0 || len(d.newest()) != 0 {
			t.Errorf("%v", d.pods())
		}
		all := b.server.Calls()
		want := append(slices.Repeat([]string{"patch pods/status default/web"}, 4), "delete pods default/web")
		if !slices.Equal(all, want) {
			t.Errorf("%v", all)
		}
	})
}
