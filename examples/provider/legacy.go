package main

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// legacy is a provider as people write them for virtual-kubelet, over the same cloud. It makes its own statuses.
type legacy struct {
	cloud *Cloud

	mu   sync.Mutex // guards pods; a real one may ask its backend instead
	pods map[string]*v1.Pod
}

func newLegacy(c *Cloud) *legacy { return &legacy{cloud: c, pods: map[string]*v1.Pod{}} }

// gone is the error virtual-kubelet knows by its method.
type gone struct{}

func (gone) Error() string  { return "the pod is not there" }
func (gone) NotFound() bool { return true }

func (l *legacy) with(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

func (l *legacy) CreatePod(ctx context.Context, pod *v1.Pod) error {
	if err := l.cloud.Order(ctx, order(pod)); err != nil {
		return err
	}
	l.with(func() { l.pods[pod.Namespace+"/"+pod.Name] = pod })
	return nil
}

func (l *legacy) UpdatePod(_ context.Context, pod *v1.Pod) error {
	l.with(func() { l.pods[pod.Namespace+"/"+pod.Name] = pod })
	return nil
}

func (l *legacy) DeletePod(ctx context.Context, pod *v1.Pod) error {
	if err := l.cloud.GiveBack(ctx, string(pod.UID)); err != nil {
		return err
	}
	l.with(func() { delete(l.pods, pod.Namespace+"/"+pod.Name) })
	return nil
}

func (l *legacy) GetPod(_ context.Context, namespace, name string) (pod *v1.Pod, err error) {
	l.with(func() {
		if pod = l.pods[namespace+"/"+name]; pod == nil {
			err = gone{}
		}
	})
	return pod, err
}

func (l *legacy) GetPods(context.Context) (all []*v1.Pod, err error) {
	l.with(func() {
		for _, p := range l.pods {
			all = append(all, p)
		}
	})
	return all, nil
}

func (l *legacy) GetPodStatus(ctx context.Context, namespace, name string) (*v1.PodStatus, error) {
	pod, err := l.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	machines, err := l.cloud.Machines(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		if types.UID(m.Name) == pod.UID {
			return legacyStatus(m, time.Now()), nil
		}
	}
	return nil, gone{}
}

func legacyStatus(m Machine, now time.Time) *v1.PodStatus {
	s := &v1.PodStatus{Phase: v1.PodRunning, PodIP: m.IP, Reason: "ProviderRuns"}
	ended := 0
	for _, a := range m.Apps {
		cs := v1.ContainerStatus{Name: a.Name, Image: a.Image}
		switch {
		case a.Started.After(now):
			s.Phase = v1.PodPending
			cs.State.Waiting = &v1.ContainerStateWaiting{Reason: "Booting"}
		case !a.Ended.IsZero():
			ended++
			cs.State.Terminated = &v1.ContainerStateTerminated{ExitCode: int32(a.Code), FinishedAt: metav1.NewTime(a.Ended)}
		default:
			cs.Ready = true
			cs.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(a.Started)}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, cs)
	}
	if ended == len(m.Apps) {
		s.Phase, s.Reason = v1.PodSucceeded, "ProviderDone"
	}
	return s
}
