package podprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/probe"
)

// ErrUndecided says that nobody here can carry out a probe of that kind: neither healthy nor unhealthy will ever be known.
var ErrUndecided = errors.New("the probe stays undecided")

// GRPC asks a gRPC health service; grpcprobe.Check does. It is handed in so that only those who need it build it.
type GRPC func(ctx context.Context, addr, service string) (probe.Result, string, error)

// Exec runs a command where the probe wants it. It returns soon after ctx ends.
type Exec func(ctx context.Context, cmd []string) (code int, out []byte, err error)

// Target is what a probe is about.
type Target struct {
	Container *v1.Container // the probe's; required
	IP        string        // of the pod, for probes that name no host
	Client    *http.Client  // for httpGet, as probe.Client makes it; sharing one is cheaper. nil: one for each check
	Exec      Exec          // nil: exec probes are ErrUndecided
	GRPC      GRPC          // nil: gRPC probes are ErrUndecided
}

// Check makes the check that p describes. An error is one of the spec (a port that does not exist, no action at all),
// of the target (no address), or ErrUndecided.
func Check(p *v1.Probe, t Target) (probe.Check, error) {
	switch {
	case p.Exec != nil:
		return execCheck(p.Exec, t)
	case p.HTTPGet != nil:
		return httpCheck(p.HTTPGet, t)
	case p.TCPSocket != nil:
		return tcpCheck(p.TCPSocket, t)
	case p.GRPC != nil:
		return grpcCheck(p.GRPC, t)
	}
	return nil, errors.New("the probe says neither exec, httpGet, tcpSocket nor grpc")
}

// Rule is the thresholds of a probe.
func Rule(p *v1.Probe) probe.Rule {
	return probe.Rule{SuccessThreshold: int(p.SuccessThreshold), FailureThreshold: int(p.FailureThreshold)}
}

// Period is the time from one check to the next, 10 s unless the probe says otherwise.
func Period(p *v1.Probe) time.Duration {
	return time.Second * time.Duration(cmp.Or(p.PeriodSeconds, 10))
}

// Timeout is how long one check may take, 1 s unless the probe says otherwise.
func Timeout(p *v1.Probe) time.Duration {
	return time.Second * time.Duration(cmp.Or(p.TimeoutSeconds, 1))
}

// Delay is the time from the start of a container to its first check.
func Delay(p *v1.Probe) time.Duration { return time.Second * time.Duration(p.InitialDelaySeconds) }

func execCheck(a *v1.ExecAction, t Target) (probe.Check, error) {
	if t.Exec == nil {
		return nil, fmt.Errorf("no way to run commands: %w", ErrUndecided)
	}
	cmd := expandAll(a.Command, t.Container.Env)
	return func(ctx context.Context) (probe.Result, string, error) {
		patience, late := probe.Patience(ctx), false
		res, text, err := probe.Exec(ctx, func(ctx context.Context) (int, []byte, error) {
			code, out, err := t.Exec(ctx, cmd)
			late = errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
			return code, out, err
		})
		if late && res == probe.Failure {
			text = fmt.Sprintf("command timed out: %.1000q timed out after %v", strings.Join(cmd, " "), patience) // the kubelet's words
		}
		return res, text, err
	}, nil
}

func httpCheck(a *v1.HTTPGetAction, t Target) (probe.Check, error) {
	addr, err := address(a.Host, a.Port, t)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil {
		u = &url.URL{Path: a.Path} // as it is: it was accepted once, and may even mean something to the server
	}
	u.Scheme, u.Host = cmp.Or(strings.ToLower(string(a.Scheme)), "http"), addr
	h := http.Header{}
	for _, f := range a.HTTPHeaders {
		h.Add(f.Name, f.Value)
	}
	target := probe.HTTPTarget{URL: u.String(), Header: h, Client: t.Client}
	return func(ctx context.Context) (probe.Result, string, error) { return probe.HTTP(ctx, target) }, nil
}

func tcpCheck(a *v1.TCPSocketAction, t Target) (probe.Check, error) {
	addr, err := address(a.Host, a.Port, t)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (probe.Result, string, error) { return probe.TCP(ctx, addr) }, nil
}

func grpcCheck(a *v1.GRPCAction, t Target) (probe.Check, error) {
	if t.GRPC == nil {
		return nil, fmt.Errorf("no way to speak gRPC: %w", ErrUndecided)
	}
	addr, err := address("", intstr.FromInt32(a.Port), t)
	if err != nil {
		return nil, err
	}
	service := ""
	if a.Service != nil {
		service = *a.Service
	}
	return func(ctx context.Context) (probe.Result, string, error) { return t.GRPC(ctx, addr, service) }, nil
}

// address is where a probe connects to. Without any host it is an error: a dialer would take that for this machine and
// find whatever listens here.
func address(host string, port intstr.IntOrString, t Target) (string, error) {
	n, err := portNumber(port, t.Container)
	if err != nil {
		return "", err
	}
	host = cmp.Or(host, t.IP)
	if host == "" {
		return "", errors.New("the pod has no address yet")
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

func portNumber(port intstr.IntOrString, c *v1.Container) (int, error) {
	n := int(port.IntVal)
	if port.Type == intstr.String {
		named := false
		for i := range c.Ports {
			if c.Ports[i].Name == port.StrVal {
				n, named = int(c.Ports[i].ContainerPort), true
				break
			}
		}
		if !named {
			return 0, fmt.Errorf("container %s has no port named %q", c.Name, port.StrVal)
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %d is out of range", n)
	}
	return n, nil
}
