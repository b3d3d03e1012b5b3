package main

import (
	"context"
	"log/slog"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// statusLog is where statuses go on a node without a cluster: a line when a pod's phase changes. The newest status is
// always to be had at /pods.
type statusLog struct {
	log *slog.Logger

	mu     sync.Mutex // guards phases
	phases map[types.UID]v1.PodPhase
}

func (s *statusLog) UpdateStatus(_ context.Context, pod *v1.Pod, st v1.PodStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phases[pod.UID] != st.Phase {
		s.phases[pod.UID] = st.Phase
		s.log.Info("a pod has changed its phase", "phase", st.Phase, "reason", st.Reason, "namespace", pod.Namespace, "pod", pod.Name, "uid", pod.UID)
	}
	return nil
}

func (s *statusLog) Finished(_ context.Context, pod *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.phases, pod.UID)
	s.log.Info("a pod has ended", "namespace", pod.Namespace, "pod", pod.Name, "uid", pod.UID)
	return nil
}
