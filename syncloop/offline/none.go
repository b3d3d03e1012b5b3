package offline

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// none is Objects where there are none.
type none struct{}

func (none) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return nil, fmt.Errorf("config map %s/%s: %w", namespace, name, runtime.ErrNotFound)
}

func (none) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, runtime.ErrNotFound)
}

func (none) Services(context.Context, string) ([]*v1.Service, error) { return nil, nil }

func (none) Token(_ context.Context, pod *v1.Pod, _ string, _ int64) (string, time.Time, error) {
	return "", time.Time{}, fmt.Errorf("service account of pod %s/%s: %w", pod.Namespace, pod.Name, runtime.ErrNotFound)
}

func (none) Class(name string) (string, error) {
	return "", fmt.Errorf("runtime class %s: %w", name, runtime.ErrNotFound)
}

func (none) Follow(string, string, string, func()) (stop func()) { return func() {} }
