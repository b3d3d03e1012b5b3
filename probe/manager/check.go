package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/podprobe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const tries = 3 // of a check that could not be carried out

// check is one turn of a prober: ask, count, tell.
func (p *prober) check(m *Manager) func(context.Context, *job) {
	return func(ctx context.Context, j *job) {
		i := p.of
		m.mu.Lock()
		if p.job != j {
			m.mu.Unlock()
			return
		}
		t, ips := Target{Pod: i.of.pod, Container: i.spec.Name, ID: i.id}, i.of.ips
		m.mu.Unlock()
		t.IP = podIP(t.Pod, ips, m.cfg.HostIPs)

		begun := time.Now()
		res, text, err := m.ask(ctx, t, p)
		took := time.Since(begun)

		m.mu.Lock()
		if p.job != j || ctx.Err() != nil { // stopped meanwhile: nobody wants the answer any more
			m.mu.Unlock()
			return
		}
		changed := false
		if err == nil {
			changed = m.count(p, res, took)
		}
		m.mu.Unlock()
		m.tell(ctx, p, t, res, text, err)
		if !changed {
			return
		}
		m.logger(t, p).Info("a probe result changed", "result", res)
		if m.cfg.Changed != nil {
			m.cfg.Changed(t.Pod.UID)
		}
	}
}

// count adds an answer to the history and figures.
func (m *Manager) count(p *prober, res probe.Result, took time.Duration) (changed bool) {
	m.metrics.count(p, res, took)
	history, verdict, decided := podprobe.Rule(p.spec).Add(p.history, res)
	p.history = history
	switch {
	case !decided:
		return false
	case verdict == probe.Success:
		return m.decided(p, runtime.Passing)
	}
	return m.decided(p, runtime.Failing)
}

// ask has a check carried out, trying again when it could not be.
func (m *Manager) ask(ctx context.Context, t Target, p *prober) (res probe.Result, text string, err error) {
	for range tries {
		res, text, err = m.askOnce(ctx, t, p)
		if err == nil || ctx.Err() != nil || errors.Is(err, podprobe.ErrUndecided) {
			break
		}
	}
	return res, text, err
}

func (m *Manager) askOnce(ctx context.Context, t Target, p *prober) (res probe.Result, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, podprobe.Timeout(p.spec))
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			res, text, err = probe.Unknown, "", fmt.Errorf("panic in the check: %v", r)
			m.logger(t, p).Error("a check panicked", "err", err, "stack", string(debug.Stack()))
		}
	}()
	if m.cfg.Check != nil {
		return m.cfg.Check(ctx, t, p.spec)
	}
	check, err := podprobe.Check(p.spec, m.podprobeTarget(t, p.of.spec))
	if err != nil {
		return probe.Unknown, "", err
	}
	return check(ctx)
}

func (m *Manager) podprobeTarget(t Target, c *v1.Container) podprobe.Target {
	out := podprobe.Target{Container: c, IP: t.IP, Client: m.client, GRPC: m.cfg.GRPC}
	if m.cfg.Exec != nil {
		out.Exec = func(ctx context.Context, cmd []string) (int, []byte, error) {
			r, err := m.cfg.Exec.Exec(ctx, t.ID, cmd)
			if errors.Is(err, runtime.ErrNoCommand) { // asked again it will not be there either: a shell would say so, with that code
				return 127, []byte(err.Error()), nil
			}
			return r.Code, r.Output, err
		}
	}
	return out
}

// tell says what a person may want to read about an answer.
func (m *Manager) tell(ctx context.Context, p *prober, t Target, res probe.Result, text string, err error) {
	if m.log.Enabled(ctx, slog.LevelDebug) {
		m.logger(t, p).Debug("probed", "result", res, "text", text, "err", err)
	}
	e := observe.Event{About: observe.Pod(t.Pod.Namespace, t.Pod.Name, string(t.Pod.UID)), Warning: true, Reason: "Unhealthy"}
	e.About.FieldPath = p.of.path
	switch {
	case errors.Is(err, podprobe.ErrUndecided):
		return
	case err != nil:
		e.Message = fmt.Sprintf("%v probe errored and resulted in unknown state: %v", p.kind, err)
	case res == probe.Failure:
		e.Message = fmt.Sprintf("%v probe failed: %s", p.kind, text)
	case res == probe.Warning:
		e.Reason, e.Message = "ProbeWarning", fmt.Sprintf("%v probe warning: %s", p.kind, text)
	default:
		return
	}
	m.cfg.Observe.Event(e)
}

func (m *Manager) logger(t Target, p *prober) *slog.Logger {
	return m.log.With("pod", t.Pod.Name, "namespace", t.Pod.Namespace, "uid", t.Pod.UID, "container", t.Container, "probe", p.kind)
}

// podIP is the address probes ask when they name no host.
func podIP(pod *v1.Pod, seen []string, hostIPs func() []string) string {
	var hosts []string
	if hostIPs != nil {
		hosts = hostIPs()
	}
	var first, host string
	if len(seen) > 0 {
		first = seen[0]
	}
	if len(hosts) > 0 {
		host = hosts[0]
	}
	if pod.Spec.HostNetwork {
		return cmp.Or(first, pod.Status.PodIP, host)
	}
	if len(seen) > 1 && host != "" && isIPv6(first) != isIPv6(host) {
		for _, ip := range seen {
			if isIPv6(ip) == isIPv6(host) {
				return ip
			}
		}
	}
	return cmp.Or(first, pod.Status.PodIP)
}

func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Unmap().Is6()
}
