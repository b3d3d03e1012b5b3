package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// pods answers with the wanted pods.
func (h *handler) pods(w http.ResponseWriter, _ *http.Request) error {
	all := h.cfg.Pods.Pods()
	items := make([]v1.Pod, len(all))
	for i, p := range all {
		items[i] = *p
	}
	return writeJSON(w, podList(items))
}

// running answers with what the runtime runs: names, and the images of running containers.
func (h *handler) running(w http.ResponseWriter, r *http.Request) error {
	if h.cfg.Running == nil {
		return fmt.Errorf("running pods: %w", errors.ErrUnsupported)
	}
	all, err := h.cfg.Running.Pods(r.Context())
	if err != nil {
		return fmt.Errorf("list running pods: %w", err)
	}
	items := []v1.Pod{}
	for _, p := range all {
		if p.Running() {
			items = append(items, runningPod(p))
		}
	}
	return writeJSON(w, podList(items))
}

// runningPod is as much of a pod as the runtime knows.
func runningPod(p runtime.Pod) v1.Pod {
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.State == runtime.Running {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
		}
	}
	return pod
}

func podList(items []v1.Pod) *v1.PodList {
	slices.SortFunc(items, func(a, b v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: items}
}

// configz answers with the configuration.
func (h *handler) configz(w http.ResponseWriter, _ *http.Request) error {
	if h.cfg.Configz == nil {
		return fmt.Errorf("configz: %w", errors.ErrUnsupported)
	}
	return writeJSON(w, h.cfg.Configz)
}

// garbage answers with what nobody needs, and removes it.
func (h *handler) garbage(w http.ResponseWriter, r *http.Request) error {
	if h.cfg.Garbage == nil {
		return fmt.Errorf("removing what nobody needs: %w", errors.ErrUnsupported)
	}
	h.cfg.Garbage.ServeHTTP(w, r)
	return nil
}

func (h *handler) hostLogs(w http.ResponseWriter, r *http.Request) error {
	h.cfg.HostLogs.ServeHTTP(w, r)
	return nil
}

func (h *handler) profiles(w http.ResponseWriter, r *http.Request) error {
	h.cfg.Profiles.ServeHTTP(w, r)
	return nil
}
