package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

// Proxy is a server.Streams that passes sessions to addresses of an engine. URLs and Pods are required. It may be used
// concurrently.
type Proxy struct {
	URLs runtime.StreamURLs
	Pods Pods

	Transport http.RoundTripper // reaches the engine's addresses; nil: directly, ten seconds to connect
	Observe   observe.To
}

// Pods looks at one pod; an unknown one is empty.
type Pods interface {
	Pod(ctx context.Context, uid types.UID) (runtime.Pod, error)
}

// Exec implements server.Streams.
func (p Proxy) Exec(ctx context.Context, s server.Session) (http.Handler, error) {
	id, err := p.container(ctx, s)
	if err != nil {
		return nil, err
	}
	u, err := p.URLs.ExecURL(ctx, id, s.Command, s.StreamOptions)
	return p.to(u, err, "exec")
}

// Attach implements server.Streams.
func (p Proxy) Attach(ctx context.Context, s server.Session) (http.Handler, error) {
	id, err := p.container(ctx, s)
	if err != nil {
		return nil, err
	}
	u, err := p.URLs.AttachURL(ctx, id, s.StreamOptions)
	return p.to(u, err, "attach")
}

// PortForward implements server.Streams.
func (p Proxy) PortForward(ctx context.Context, s server.Session) (http.Handler, error) {
	seen, err := p.Pods.Pod(ctx, s.Pod.UID)
	if err != nil {
		return nil, fmt.Errorf("look at pod %s: %w", s.Pod.Name, err)
	}
	for _, box := range seen.Sandboxes {
		if box.Ready {
			u, err := p.URLs.PortForwardURL(ctx, box.ID, s.Ports)
			return p.to(u, err, "port-forward")
		}
	}
	return nil, fmt.Errorf("pod not found (%q): it has no sandbox that runs: %w", s.Pod.Name+"_"+s.Pod.Namespace, runtime.ErrNotFound)
}

// container is the ID of the running instance of a container.
func (p Proxy) container(ctx context.Context, s server.Session) (string, error) {
	seen, err := p.Pods.Pod(ctx, s.Pod.UID)
	if err != nil {
		return "", fmt.Errorf("look at pod %s: %w", s.Pod.Name, err)
	}
	if c := seen.Newest(s.Container); c != nil && c.State == runtime.Running {
		return c.ID, nil
	}
	return "", fmt.Errorf("container not found (%q): pod %s has none of that name that runs: %w", s.Container, s.Pod.Name, runtime.ErrNotFound)
}

// to makes the handler that passes one session on.
func (p Proxy) to(u *url.URL, err error, what string) (http.Handler, error) {
	if err == nil && u == nil {
		err = errors.New("it gave no address")
	}
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for a stream (%s): %w", what, err)
	}
	transport := p.Transport
	if transport == nil {
		transport = direct()
	}
	logger := p.Observe.Logger()
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r, u) },
		Transport:      transport,
		ModifyResponse: check,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			logger.Warn("stream from the runtime went wrong", "stream", what, "err", hide(err))
			http.Error(w, "the container runtime's streaming server gave no stream", http.StatusBadGateway)
		},
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // sessions break off every day
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxy.ServeHTTP(lingerer{w}, r)
	}), nil
}

// direct connects without asking the environment for a proxy: it would see the address.
func direct() http.RoundTripper {
	d := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true, ResponseHeaderTimeout: time.Minute}
}

// rewrite sends the request to exactly that address, without what let the client in.
func rewrite(r *httputil.ProxyRequest, u *url.URL) {
	to := *u
	r.Out.URL, r.Out.Host = &to, u.Host
	r.Out.Header.Del("Authorization")
	r.Out.Header.Del("Cookie")
	const protocol = "Sec-WebSocket-Protocol"
	var keep []string
	for _, v := range r.In.Header.Values(protocol) {
		for w := range strings.SplitSeq(v, ",") {
			if w = strings.TrimSpace(w); !strings.HasPrefix(w, "base64url.bearer.authorization.k8s.io.") {
				keep = append(keep, w)
			}
		}
	}
	r.Out.Header.Del(protocol)
	if len(keep) > 0 {
		r.Out.Header.Set(protocol, strings.Join(keep, ", "))
	}
}

// check lets switches of protocol and refusals pass.
func check(r *http.Response) error {
	if r.StatusCode != http.StatusSwitchingProtocols && r.StatusCode < http.StatusBadRequest {
		return fmt.Errorf("answer %d instead of a stream", r.StatusCode)
	}
	for _, h := range []string{"Location", "Content-Location", "Refresh", "Link", "Set-Cookie"} {
		r.Header.Del(h)
	}
	if conn, ok := r.Body.(io.ReadWriteCloser); ok && r.StatusCode == http.StatusSwitchingProtocols {
		r.Body = engineSide{conn}
	}
	return nil
}

// hide takes the address out of an error: it is good for a session as long as nobody used it.
func hide(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
