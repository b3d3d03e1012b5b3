package cri

import (
	"context"
	"fmt"
	"net/url"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ExecURL is where a command's session can be had.
func (e *Engine) ExecURL(ctx context.Context, id string, cmd []string, o runtime.StreamOptions) (*url.URL, error) {
	q := &cri.ExecRequest{ContainerId: id, Cmd: cmd, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr}
	what := "open exec in container " + id
	a, err := invoke(ctx, e, call{op: "exec", what: what}, e.runtime.Exec, q)
	return address(what, a.GetUrl(), err)
}

// AttachURL is where the session with a container's own process can be had.
func (e *Engine) AttachURL(ctx context.Context, id string, o runtime.StreamOptions) (*url.URL, error) {
	q := &cri.AttachRequest{ContainerId: id, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr}
	what := "attach to container " + id
	a, err := invoke(ctx, e, call{op: "attach", what: what}, e.runtime.Attach, q)
	return address(what, a.GetUrl(), err)
}

// PortForwardURL is where connections to ports of a sandbox can be had.
func (e *Engine) PortForwardURL(ctx context.Context, sandbox string, ports []int32) (*url.URL, error) {
	what := "forward ports of sandbox " + sandbox
	q := &cri.PortForwardRequest{PodSandboxId: sandbox, Port: ports}
	a, err := invoke(ctx, e, call{op: "port_forward", what: what}, e.runtime.PortForward, q)
	return address(what, a.GetUrl(), err)
}

// address reads a URL. It is as good as a password, so no error shows it.
func address(what, s string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%s: the runtime's answer is no address", what)
	}
	return u, nil
}

// ReopenLog makes the runtime open a container's log file anew.
func (e *Engine) ReopenLog(ctx context.Context, id string) error {
	q := &cri.ReopenContainerLogRequest{ContainerId: id}
	_, err := invoke(ctx, e, call{op: "reopen_container_log", what: "reopen the log of container " + id}, e.runtime.ReopenContainerLog, q)
	return err
}
