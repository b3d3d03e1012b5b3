package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// door is where an agent's server answers.
type door struct {
	port int
	root string // the agent's root directory, where it puts the administrator's token
	web  *http.Client
}

// doorOf trusts whoever answers: agents sign for themselves.
func doorOf(root string, port int) door {
	return door{port: port, root: root, web: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // on this machine
	}}}
}

// ask asks the agent's server.
func (d door) ask(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", d.port, path), http.NoBody)
	if err != nil {
		return nil, err
	}
	if token, err := os.ReadFile(filepath.Join(d.root, "admin.token")); err == nil {
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	a, err := d.web.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", path, a.Status, body)
	}
	return body, err
}

// calls is how many calls of the container runtime the agent has made.
func (d door) calls(ctx context.Context) (sum float64, err error) {
	body, err := d.ask(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(name, "kubelet_runtime_operations_total{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read a counter of the agent: %w", err)
		}
		sum += n
	}
	return sum, nil
}

// profile writes to a file where the agent's time goes from now on for so long. It sends once, when that is done.
func (d door) profile(ctx context.Context, span time.Duration, file string) <-chan error {
	done := make(chan error, 1)
	go func() {
		profile, err := d.ask(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(span.Seconds())))
		if err == nil {
			err = os.WriteFile(file, profile, 0o600)
		}
		done <- err
	}()
	return done
}

// unwanted is a profile that nobody asked for.
func unwanted() <-chan error {
	done := make(chan error, 1)
	done <- nil
	return done
}
