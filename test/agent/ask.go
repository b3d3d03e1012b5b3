package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Get asks for a path with the administrator's token. An answer other than 200 is an error that holds the body.
func (a *Agent) Get(ctx context.Context, path string) ([]byte, error) {
	resp, err := a.Do(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %s", path, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// Do sends a request with the administrator's token. The caller closes the body.
func (a *Agent) Do(ctx context.Context, method, path string) (*http.Response, error) {
	if err := a.gone(); err != nil {
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(a.Root, "admin.token")) // each process makes a new one
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("https://127.0.0.1:%d%s", a.port, path), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return a.client.Do(r)
}

// Healthy asks one health check, or all of them when check is empty. The error holds the reason given.
func (a *Agent) Healthy(ctx context.Context, check string) error {
	path := "/healthz"
	if check != "" {
		path += "/" + check
	}
	_, err := a.Get(ctx, path)
	return err
}

// Ready waits until all health checks are good. It fails the test when that takes longer than a minute.
func (a *Agent) Ready() {
	a.tb.Helper()
	Eventually(a.tb, time.Minute, "the agent is healthy", func() error { return a.Healthy(a.tb.Context(), "") })
}

// Pods are the wanted pods with their newest status.
func (a *Agent) Pods(ctx context.Context) ([]v1.Pod, error) {
	body, err := a.Get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode /pods: %w", err)
	}
	return list.Items, nil
}

// Pod is one of them. It is an error when it is not there, or there twice.
func (a *Agent) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	pods, err := a.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var found []v1.Pod
	for _, p := range pods {
		if p.Namespace == namespace && p.Name == name {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("/pods has %d pods %s/%s", len(found), namespace, name)
	}
	return &found[0], nil
}

// PodReady tells whether a pod's condition Ready is true.
func PodReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
