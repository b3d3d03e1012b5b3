package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Session is a wish for a stream into a pod.
type Session struct {
	Pod       *v1.Pod
	Container string   // exec and attach
	Command   []string // exec
	runtime.StreamOptions
	Ports []int32 // port-forward by WebSocket; SPDY names ports later
}

// Streams answers with the handler that takes the request over: a proxy to an address of the runtime (server/stream),
// or one that speaks the protocol itself. The request asks for an upgrade. errors.ErrUnsupported becomes 501,
// runtime.ErrNotFound 404; the text of any error is shown to the user.
type Streams interface {
	Exec(ctx context.Context, s Session) (http.Handler, error)
	Attach(ctx context.Context, s Session) (http.Handler, error)
	PortForward(ctx context.Context, s Session) (http.Handler, error)
}

func (h *handler) exec(w http.ResponseWriter, r *http.Request) error {
	s, _, err := h.session(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if s.Command = q["command"]; len(s.Command) == 0 {
		return fail(http.StatusBadRequest, "a command is needed: command=..., once for each word")
	}
	if s.StreamOptions, err = streamOptions(q, q.Get("tty") == "1"); err != nil {
		return err
	}
	return h.hand(w, r, s, h.cfg.Streams.Exec)
}

func (h *handler) attach(w http.ResponseWriter, r *http.Request) error {
	s, c, err := h.session(r)
	if err != nil {
		return err
	}
	if s.StreamOptions, err = streamOptions(r.URL.Query(), c.TTY); err != nil {
		return err
	}
	return h.hand(w, r, s, h.cfg.Streams.Attach)
}

func (h *handler) portForward(w http.ResponseWriter, r *http.Request) error {
	pod, err := h.target(r)
	if err != nil {
		return err
	}
	ports, err := portsOf(r)
	if err != nil {
		return err
	}
	return h.hand(w, r, Session{Pod: pod, Ports: ports}, h.cfg.Streams.PortForward)
}

// session reads what exec and attach have in common.
func (h *handler) session(r *http.Request) (Session, *v1.Container, error) {
	pod, err := h.target(r)
	if err != nil {
		return Session{}, nil, err
	}
	c, err := container(pod, r.PathValue("container"))
	if err != nil {
		return Session{}, nil, err
	}
	return Session{Pod: pod, Container: c.Name}, c, nil
}

// target is the pod that a session goes to.
func (h *handler) target(r *http.Request) (*v1.Pod, error) {
	if h.cfg.Streams == nil {
		return nil, fmt.Errorf("exec, attach and port-forward are not served by this agent: %w", errors.ErrUnsupported)
	}
	if !asksUpgrade(r) {
		return nil, fail(http.StatusBadRequest, "an upgrade to SPDY or WebSocket is needed here, over HTTP/1.1")
	}
	return h.find(r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid")))
}

// hand lets Streams take the request over.
func (h *handler) hand(w http.ResponseWriter, r *http.Request, s Session, open func(context.Context, Session) (http.Handler, error)) error {
	next, err := open(r.Context(), s)
	if err != nil {
		return err
	}
	next.ServeHTTP(w, r)
	return nil
}

// streamOptions reads which streams are wanted. A terminal has no stderr of its own.
func streamOptions(q url.Values, tty bool) (runtime.StreamOptions, error) {
	o := runtime.StreamOptions{Stdin: q.Get("input") == "1", Stdout: q.Get("output") == "1", Stderr: q.Get("error") == "1", TTY: tty}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, fail(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr: input=1, output=1, error=1")
	}
	o.Stderr = o.Stderr && !tty
	return o, nil
}

// portsOf reads the ports that a WebSocket must name. Those tunneling SPDY name them later.
func portsOf(r *http.Request) ([]int32, error) {
	if !headerHas(r, "Upgrade", "websocket") {
		return nil, nil
	}
	var ports []int32
	for _, v := range r.URL.Query()["port"] {
		for p := range strings.SplitSeq(v, ",") {
			n, err := strconv.ParseUint(strings.TrimSpace(p), 10, 16)
			if err != nil || n == 0 {
				return nil, fail(http.StatusBadRequest, "%q is no port: a number from 1 to 65535", p)
			}
			ports = append(ports, int32(n))
		}
	}
	if len(ports) == 0 && !strings.Contains(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), "SPDY/3.1+") {
		return nil, fail(http.StatusBadRequest, `query parameter "port" is required`)
	}
	return ports, nil
}

func asksUpgrade(r *http.Request) bool {
	return headerHas(r, "Connection", "upgrade") && r.Header.Get("Upgrade") != ""
}

// headerHas says that a header with a list of words has that word.
func headerHas(r *http.Request, header, word string) bool {
	for _, v := range r.Header.Values(header) {
		for w := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(w), word) {
				return true
			}
		}
	}
	return false
}
