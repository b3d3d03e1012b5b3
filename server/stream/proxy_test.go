package stream_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/asuser"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is a runtime with one pod, and the addresses it gives.
type engine struct {
	base  *url.URL
	err   error
	asked string
}

func (e *engine) address(what string, args ...any) (*url.URL, error) {
	e.asked = fmt.Sprintf(what, args...)
	if e.err != nil || e.base == nil {
		return nil, e.err
	}
	return e.base.Parse("/exec/s3cret")
}

func (e *engine) ExecURL(_ context.Context, id string, cmd []string, o runtime.StreamOptions) (*url.URL, error) {
	return e.address("exec %s %v %+v", id, cmd, o)
}

func (e *engine) AttachURL(_ context.Context, id string, o runtime.StreamOptions) (*url.URL, error) {
	return e.address("attach %s %+v", id, o)
}

func (e *engine) PortForwardURL(_ context.Context, sandbox string, ports []int32) (*url.URL, error) {
	return e.address("port-forward %s %v", sandbox, ports)
}

func (e *engine) Pod(_ context.Context, uid types.UID) (runtime.Pod, error) {
	p := runtime.Pod{PodRef: runtime.PodRef{Namespace: "default", Name: "web", UID: uid}}
	if uid == "u1" {
		p.Sandboxes = []runtime.Sandbox{{ID: "new", Ready: true}, {ID: "old"}}
		p.Containers = []runtime.Container{
			{ID: "app-2", Name: "app", State: runtime.Running},
			{ID: "app-1", Name: "app", State: runtime.Exited},
			{ID: "job-1", Name: "job", State: runtime.Exited},
		}
	}
	return p, nil
}

type pods []*v1.Pod

func (p pods) Pods() []*v1.Pod { return p }

func podOf(name string, uid types.UID) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}, {Name: "job"}}},
	}
}

// node serves the API over TLS, with a proxy to an engine whose streaming server is the given handler.
func node(t *testing.T, streaming http.HandlerFunc) (*httptest.Server, *engine, *strings.Builder) {
	t.Helper()
	e, log := &engine{}, &strings.Builder{}
	if streaming != nil {
		back := httptest.NewServer(streaming)
		t.Cleanup(back.Close)
		e.base, _ = url.Parse(back.URL)
	}
	o := observe.To{Log: slog.New(slog.NewTextHandler(log, nil))}
	h, err := server.New(server.Config{
		Pods:    pods{podOf("web", "u1"), podOf("gone", "u2")},
		Access:  server.AdminAccess{Token: "t0ken"},
		Streams: stream.Proxy{URLs: e, Pods: e, Observe: o},
	})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(h)
	t.Cleanup(front.Close)
	return front, e, log
}

// answer to a wish for a session.
type answer struct {
	code   int
	header http.Header
	body   string // unless the protocol was switched
}

// open asks for a session. After a switch of protocols it goes on over the connection, of which the reader reads.
func open(t *testing.T, front *httptest.Server, method, path, protocol string, headers ...string) (*tls.Conn, *bufio.Reader, answer) {
	t.Helper()
	conn, err := tls.Dial("tcp", front.Listener.Addr().String(), front.Client().Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	req := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: %s\r\nAuthorization: Bearer t0ken\r\nContent-Length: 0\r\n%s\r\n", method, path, protocol, strings.Join(headers, ""))
	if _, err := conn.Write([]byte(req)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := answer{code: resp.StatusCode, header: resp.Header}
	if got.code != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(resp.Body)
		got.body = string(body)
	}
	return conn, r, got
}

// upgrade takes a connection over as a runtime's streaming server does.
func upgrade(w http.ResponseWriter, protocol string, session func(net.Conn, *bufio.ReadWriter)) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", protocol)
	session(conn, rw)
}

func echo(conn net.Conn, rw *bufio.ReadWriter) {
	_, _ = io.Copy(conn, rw)
	_, _ = conn.Write([]byte(" done"))
}

func TestSessionsReachTheRuntime(t *testing.T) {
	for _, tt := range []struct{ name, method, path, protocol, asked string }{
		{"exec by SPDY", "POST", "/exec/default/web/app?command=echo&command=a+b&input=1&output=1", "SPDY/3.1", "exec app-2 [echo a b] {Stdin:true Stdout:true Stderr:false TTY:false}"},
		{"exec by WebSocket", "GET", "/exec/default/web/u1/app?command=sh&output=1&tty=1", "websocket", "exec app-2 [sh] {Stdin:false Stdout:true Stderr:false TTY:true}"},
		{"attach", "POST", "/attach/default/web/app?output=1&error=1", "SPDY/3.1", "attach app-2 {Stdin:false Stdout:true Stderr:true TTY:false}"},
		{"port-forward by SPDY", "POST", "/portForward/default/web", "SPDY/3.1", "port-forward new []"},
		{"port-forward by WebSocket", "GET", "/portForward/default/web?port=80&port=8080,9090", "websocket", "port-forward new [80 8080 9090]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got *http.Request
			front, e, _ := node(t, func(w http.ResponseWriter, r *http.Request) {
				got = r
				upgrade(w, r.Header.Get("Upgrade"), echo)
			})
			conn, r, resp := open(t, front, tt.method, tt.path, tt.protocol,
				"Sec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dDBrZW4\r\n", "Cookie: a=b\r\n")
			if resp.code != http.StatusSwitchingProtocols || resp.header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
				t.Fatalf("answer %+v", resp)
			}
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if out, err := io.ReadAll(r); err != nil || string(out) != "hello done" {
				t.Errorf("got %q, %v", out, err)
			}
			if e.asked != tt.asked {
				t.Errorf("asked for %q, want %q", e.asked, tt.asked)
			}
			if got.Method != tt.method || got.URL.String() != "/exec/s3cret" {
				t.Errorf("the runtime saw %s %s", got.Method, got.URL)
			}
			if p := got.Header.Get("Sec-WebSocket-Protocol"); p != "v4.channel.k8s.io" || got.Header.Get("Authorization") != "" || got.Header.Get("Cookie") != "" {
				t.Errorf("credentials were passed on: %v", got.Header)
			}
		})
	}
}

func TestSessionEndsWhenTheRuntimeEndsIt(t *testing.T) {
	front, _, _ := node(t, func(w http.ResponseWriter, r *http.Request) {
		upgrade(w, r.Header.Get("Upgrade"), func(conn net.Conn, _ *bufio.ReadWriter) { _, _ = conn.Write([]byte("bye")) })
	})
	_, r, resp := open(t, front, "POST", "/exec/default/web/app?command=true&output=1", "SPDY/3.1")
	if resp.code != http.StatusSwitchingProtocols {
		t.Fatalf("answer %+v", resp)
	}
	if out, err := io.ReadAll(r); err != nil || string(out) != "bye" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestSessionEndsWhenTheClientLeaves(t *testing.T) {
	ended := make(chan struct{})
	front, _, _ := node(t, func(w http.ResponseWriter, r *http.Request) {
		upgrade(w, r.Header.Get("Upgrade"), func(_ net.Conn, rw *bufio.ReadWriter) {
			_, _ = io.Copy(io.Discard, rw)
			close(ended)
		})
	})
	conn, _, resp := open(t, front, "POST", "/exec/default/web/app?command=cat&input=1", "SPDY/3.1")
	if resp.code != http.StatusSwitchingProtocols {
		t.Fatalf("answer %+v", resp)
	}
	_ = conn.Close()
	<-ended
}

func TestCase_c124_theAddressOfTheRuntimeIsNotShown(t *testing.T) {
	redirect := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://169.254.169.254/")
		w.WriteHeader(http.StatusFound)
	}
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://elsewhere/")
		http.Error(w, "unknown session", http.StatusNotFound)
	}
	for _, tt := range []struct {
		name      string
		streaming http.HandlerFunc
		code      int
		text      string
	}{
		{"it is gone", nil, http.StatusBadGateway, "gave no stream"},
		{"it redirects", redirect, http.StatusBadGateway, "gave no stream"},
		{"it answers without a stream", func(http.ResponseWriter, *http.Request) {}, http.StatusBadGateway, "gave no stream"},
		{"it speaks another protocol", func(w http.ResponseWriter, _ *http.Request) {
			upgrade(w, "other", echo)
		}, http.StatusBadGateway, "gave no stream"},
		{"it refuses", refuse, http.StatusNotFound, "unknown session"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			front, e, log := node(t, tt.streaming)
			if tt.streaming == nil {
				e.base = &url.URL{Scheme: "http", Host: fmt.Sprint("127.0.0.1:", asuser.FreePort(t))}
			}
			_, _, resp := open(t, front, "POST", "/exec/default/web/app?command=true&output=1", "SPDY/3.1")
			if resp.code != tt.code || !strings.Contains(resp.body, tt.text) {
				t.Errorf("answer %+v", resp)
			}
			shown := fmt.Sprint(resp)
			for _, secret := range []string{e.base.Host, "s3cret", "169.254"} {
				if strings.Contains(shown, secret) {
					t.Errorf("%q is shown in %s", secret, shown)
				}
			}
			if strings.Contains(log.String(), "s3cret") {
				t.Errorf("the address is logged: %s", log)
			}
		})
	}
}

func TestSessionsAreRefused(t *testing.T) {
	front, e, _ := node(t, nil)
	for _, tt := range []struct {
		name, path string
		err        error
		code       int
		text       string
	}{
		{"a container that does not run", "/exec/default/web/job?command=a&output=1", nil, http.StatusNotFound, `container not found ("job"): pod web has none of that name that runs`},
		{"a container that does not run, to attach", "/attach/default/web/job?output=1", nil, http.StatusNotFound, `container not found ("job"): pod web has none of that name that runs`},
		{"a pod that does not run", "/portForward/default/gone", nil, http.StatusNotFound, `pod not found ("gone_default"): it has no sandbox that runs`},
		{"an engine that cannot", "/exec/default/web/app?command=a&output=1", errors.ErrUnsupported, http.StatusNotImplemented, "unsupported"},
		{"an engine that is away", "/attach/default/web/app?output=1", runtime.ErrUnavailable, http.StatusServiceUnavailable, "not available"},
		{"an engine that is slow", "/portForward/default/web", context.DeadlineExceeded, http.StatusGatewayTimeout, "deadline"},
		{"an engine that gives no address", "/portForward/default/web", nil, http.StatusInternalServerError, "no address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e.err = tt.err
			_, _, resp := open(t, front, "POST", tt.path, "SPDY/3.1")
			if resp.code != tt.code || !strings.Contains(resp.body, tt.text) {
				t.Errorf("answer %+v", resp)
			}
		})
	}
}
