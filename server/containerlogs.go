package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
)

// logs answers with a container's log.
func (h *handler) logs(w http.ResponseWriter, r *http.Request) error {
	if h.cfg.Logs == nil {
		return fmt.Errorf("container logs: %w", errors.ErrUnsupported)
	}
	o, previous, err := logOptions(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	pod, err := h.find(r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		return err
	}
	name := r.PathValue("container")
	if _, err := container(pod, name); err != nil {
		return err
	}
	rc, err := h.cfg.Logs.Logs(r.Context(), pod, name, previous, o)
	switch {
	case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, runtime.ErrUnavailable):
		return err
	case err != nil:
		return fail(http.StatusBadRequest, "%v", err) // as the kubelet: whoever asks can mend it or come again
	}
	defer func() { _ = rc.Close() }() // it was only read
	if err := stream(w, rc, o.Follow); err != nil && r.Context().Err() == nil {
		h.log.Warn("log ended early", "namespace", pod.Namespace, "pod", pod.Name, "container", name, "err", err)
	}
	return nil
}

// logsUsage answers for paths that lack something.
func (h *handler) logsUsage(_ http.ResponseWriter, r *http.Request) error {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, "/containerLogs"), "/"), "/")
	switch {
	case len(parts) > 2:
		return fail(http.StatusNotFound, "the path is /containerLogs/{namespace}/{pod}/{container}")
	case parts[0] == "":
		return message(http.StatusBadRequest, "Missing podNamespace.")
	case len(parts) == 1:
		return message(http.StatusBadRequest, "Missing podID.")
	}
	pod, err := h.find(parts[0], parts[1], "")
	if err != nil {
		return err
	}
	var names []string
	for c := range containers(pod) {
		names = append(names, c.Name)
	}
	return message(http.StatusBadRequest, "Missing container name: one of "+list(names)+".")
}

// stream copies a log. With flush each piece is out at once, and the header before the first.
func stream(w http.ResponseWriter, log io.Reader, flush bool) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	rc := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		if flush {
			if err := rc.Flush(); err != nil {
				return err
			}
		}
		n, err := log.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// logOptions reads what is wanted of a log. Its errors are answers.
func logOptions(q url.Values, now time.Time) (o logs.Options, previous bool, err error) {
	p := params{values: q}
	if tail := q.Get("tail"); tail != "" { // the old name
		q["tailLines"] = []string{tail}
		if tail == "all" {
			delete(q, "tailLines")
		}
	}
	o.Follow, o.Timestamps, previous = p.flag("follow"), p.flag("timestamps"), p.flag("previous")
	tail, tailed := p.number("tailLines")
	limit, limited := p.number("limitBytes")
	seconds, agoGiven := p.number("sinceSeconds")
	since, sinceGiven := p.time("sinceTime")
	name := v1.LogStreamAll
	if q.Has("stream") {
		name = q.Get("stream")
	}
	if p.err != nil {
		return o, false, message(http.StatusBadRequest, "Unable to decode query: "+p.err.Error()+".")
	}

	invalid := ""
	switch {
	case tailed && tail < 0:
		invalid = "tailLines must be 0 or more"
	case limited && limit < 1:
		invalid = "limitBytes must be 1 or more"
	case agoGiven && sinceGiven:
		invalid = "at most one of sinceTime and sinceSeconds may be given"
	case agoGiven && seconds < 1:
		invalid = "sinceSeconds must be 1 or more"
	case !slices.Contains([]string{v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr}, name):
		invalid = "stream must be All, Stdout or Stderr"
	case name != v1.LogStreamAll && tailed:
		invalid = "tailLines and a stream exclude each other"
	}
	if invalid != "" {
		return o, false, message(http.StatusUnprocessableEntity, "Invalid request: "+invalid+".")
	}

	o.Limit, o.Since = limit, since
	if agoGiven {
		o.Since = now.Add(-time.Duration(min(seconds, now.Unix())) * time.Second)
	}
	if o.Tail = tail; tailed && tail == 0 {
		o.Tail = -1
	}
	o.Stream = map[string]string{v1.LogStreamStdout: logs.Stdout, v1.LogStreamStderr: logs.Stderr}[name]
	return o, previous, nil
}

// message is an answer in the form that the kubelet has for this path.
func message(code int, text string) error {
	b, err := json.Marshal(map[string]string{"message": text})
	if err != nil {
		return err
	}
	return fail(code, "%s", b)
}

// params reads a query and keeps the first error.
type params struct {
	values url.Values
	err    error
}

// flag is true for all but an absent one, 0 and false, as API servers read it.
func (p *params) flag(name string) bool {
	v, ok := p.values[name]
	return ok && v[0] != "0" && !strings.EqualFold(v[0], "false")
}

func (p *params) number(name string) (n int64, given bool) {
	if !p.values.Has(name) {
		return 0, false
	}
	v := p.values.Get(name)
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s is no whole number: %q", name, v)
	}
	return n, true
}

func (p *params) time(name string) (t time.Time, given bool) {
	if !p.values.Has(name) {
		return time.Time{}, false
	}
	v := p.values.Get(name)
	if v == "" || v == "null" {
		return time.Time{}, true
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s is no RFC 3339 time: %q", name, v)
	}
	return t, true
}
