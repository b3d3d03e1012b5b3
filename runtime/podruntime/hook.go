package podruntime

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// hookUserAgent is how lifecycle requests introduce themselves.
const hookUserAgent = "kube-lifecycle/1.37"

// owes says that a container has a postStart hook, and that there is a place to note that it is due.
func (s *step) owes(c *v1.Container) bool {
	return c.Lifecycle != nil && c.Lifecycle.PostStart != nil && s.cfg.Root != ""
}

// hookDue notes that a container is about to be started whose hook is to run then. Without it the hook runs all the same, if nothing
// comes between.
func (s *step) hookDue(c *v1.Container, id string) {
	if !s.owes(c) {
		return
	}
	file := s.files.hookFile(s.pod.UID, c.Name)
	err := os.MkdirAll(filepath.Dir(file), 0o750)
	if err == nil {
		err = os.WriteFile(file, []byte(id), 0o640)
	}
	if err != nil {
		s.cfg.Observe.Logger().Warn("that a postStart hook is due was not noted", "pod", refOf(s.pod), "container", c.Name, "err", err)
	}
}

// hookDone notes that there is nothing to be run any more.
func (s *step) hookDone(c *v1.Container) {
	if s.owes(c) {
		_ = os.Remove(s.files.hookFile(s.pod.UID, c.Name)) // it goes with the pod at the latest
	}
}

// hooksDue runs the postStart hooks of containers that run and whose hooks have not come to their end, as the agent did before, or as
// it never heard of the start.
func (s *step) hooksDue(ctx context.Context, p plan.Plan) {
	for _, c := range podspec.Containers(s.pod) {
		seen := s.in.Seen.Newest(c.Name)
		if seen == nil || seen.State != runtime.Running || !s.owes(c) {
			continue
		}
		if id, err := os.ReadFile(s.files.hookFile(s.pod.UID, c.Name)); err != nil || string(id) != seen.ID {
			continue
		}
		if slices.ContainsFunc(p.Stops, func(a plan.Action) bool { return a.ID == seen.ID }) {
			continue
		}
		s.result.Acted = true
		if err := s.postStart(ctx, c, seen.ID); err != nil {
			_ = s.notStarted(ctx, c.Name, err) // that shows it
		}
	}
}

// postStart runs the hook of a container that has been started. When it fails the container is stopped.
func (s *step) postStart(ctx context.Context, c *v1.Container, id string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	err := ctx.Err()
	if err == nil {
		err = s.hook(ctx, s.pod, c, id, c.Lifecycle.PostStart)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // it is due to the next one who comes, if the container still runs then
	}
	s.hookDone(c)
	if err == nil {
		return nil
	}
	// What a hook says may be secret: it goes into no event.
	s.tell(c.Name, true, "FailedPostStartHook", "PostStartHook failed")
	s.cfg.Observe.Logger().Warn("postStart hook failed; the container is stopped", "pod", refOf(s.pod), "container", c.Name, "err", err)
	stop := plan.Action{Verb: plan.StopContainer, ID: id, Container: c.Name, Grace: plan.Grace(s.pod, runtime.Termination{}), Why: "FailedPostStartHook"}
	if e := s.stop(ctx, s.pod, []plan.Action{stop}); e != nil {
		err = errors.Join(err, e)
	}
	return waiting("PostStartHookError", err)
}

// preStop runs the hook of a container that is about to be stopped, once, and waits for it as long as the grace lasts. Then it
// goes on beside the stop, as with the kubelet, until end is called. An error says that nobody was there to run it, and that it
// is to be tried again before the container is stopped.
func (r *Runtime) preStop(ctx context.Context, pod *v1.Pod, a *ending) (end func(), err error) {
	c, _ := plan.Find(pod, a.Container)
	if a.Hookless || c == nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil || !r.memory.once(pod.UID, preStopRun, a.ID) {
		return func() {}, nil
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- r.hook(running, pod, c, a.ID, c.Lifecycle.PreStop)
	}()
	end = func() {
		cancel()
		for range done { // what it comes to is of no use any more
		}
	}
	late := time.NewTimer(time.Until(a.end))
	defer late.Stop()
	select {
	case err = <-done:
	case <-late.C:
		err = context.DeadlineExceeded
	}
	switch {
	case errors.Is(err, runtime.ErrUnavailable) && time.Now().Before(a.end):
		r.memory.undo(pod.UID, preStopRun, a.ID)
		end()
		return nil, fmt.Errorf("preStop hook of container %s: %w", a.Container, err)
	case err != nil:
		r.tell(pod, a.Container, true, "FailedPreStopHook", "PreStopHook failed")
		r.cfg.Observe.Logger().Warn("preStop hook failed; the container is stopped all the same", "pod", refOf(pod), "container", a.Container, "err", err)
	}
	return end, nil
}

func (r *Runtime) hook(ctx context.Context, pod *v1.Pod, c *v1.Container, id string, h *v1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		out, err := r.cfg.Engine.Exec(ctx, id, h.Exec.Command)
		if err == nil && out.Code != 0 {
			err = fmt.Errorf("command exited with %d: %.256s", out.Code, out.Output)
		}
		return err
	case h.Sleep != nil:
		select {
		case <-time.After(podspec.Seconds(h.Sleep.Seconds)):
			return nil
		case <-ctx.Done():
			r.metrics.sleepsCut.Record(1)
			return context.Cause(ctx)
		}
	case h.HTTPGet != nil:
		req, err := r.hookRequest(ctx, c, id, h.HTTPGet)
		if err != nil {
			return err
		}
		return r.ask(pod, req)
	}
	return errors.New("the handler is none of exec, httpGet and sleep")
}

// ask sends a hook's request. Any answer is a success, whatever its status; one in plain HTTP to HTTPS is asked for again in
// plain HTTP, without what may be secret.
func (r *Runtime) ask(pod *v1.Pod, req *http.Request) error {
	resp, err := r.hooks.Do(req)
	if errors.Is(err, http.ErrSchemeMismatch) {
		req = req.Clone(req.Context())
		req.URL.Scheme = "http"
		req.Header.Del("Authorization")
		if resp, err = r.hooks.Do(req); err == nil {
			r.metrics.plainHooks.Record(1)
			r.tell(pod, "", true, "LifecycleHTTPFallback", "request to HTTPS lifecycle hook "+req.URL.Host+" got HTTP response, retry with HTTP succeeded")
		}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10)) // the answer does not matter
	return nil
}

// hookRequest is for an address of the container.
func (r *Runtime) hookRequest(ctx context.Context, c *v1.Container, id string, h *v1.HTTPGetAction) (*http.Request, error) {
	host := h.Host
	if host == "" {
		seen, err := r.cfg.Engine.Container(ctx, id)
		if err != nil {
			return nil, err
		}
		sandbox, err := r.cfg.Engine.Sandbox(ctx, seen.SandboxID)
		if err != nil {
			return nil, err
		}
		if host = first(sandbox.IPs); sandbox.HostNetwork && host == "" && r.cfg.HostIPs != nil {
			host = first(r.cfg.HostIPs())
		}
	}
	port := h.Port.IntValue()
	for _, p := range c.Ports {
		if h.Port.StrVal != "" && p.Name == h.Port.StrVal {
			port = int(p.ContainerPort)
		}
	}
	if host == "" || port < 1 || port > 65535 {
		return nil, fmt.Errorf("httpGet: no address: host %q, port %s", host, h.Port.String())
	}
	u, err := url.Parse(h.Path)
	if err != nil {
		u = &url.URL{Path: h.Path} // as it is, like the path of a probe
	}
	u.Scheme, u.Host = cmp.Or(strings.ToLower(string(h.Scheme)), "http"), net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", hookUserAgent)
	req.Header.Set("Accept", "*/*")
	said := http.Header{}
	for _, header := range h.HTTPHeaders {
		said.Add(header.Name, header.Value)
	}
	maps.Copy(req.Header, said)
	if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	if host := said.Get("Host"); host != "" {
		req.Host = host
	}
	return req, nil
}

func hookClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // as the kubelet: a container's certificate is its own
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}
