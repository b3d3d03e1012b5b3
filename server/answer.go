package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// failure is an answer that is an error for whoever asked.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// answer shows an error. Codes of conditions every part knows are the kubelet's, where it has one.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	if f, ok := errors.AsType[*failure](err); ok {
		code = f.code
	} else {
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			code = http.StatusNotImplemented
		case errors.Is(err, runtime.ErrNotFound):
			code = http.StatusNotFound
		case errors.Is(err, runtime.ErrUnavailable):
			code = http.StatusServiceUnavailable
		case errors.Is(err, context.DeadlineExceeded):
			code = http.StatusGatewayTimeout
		}
	}
	h.log.Debug("request refused", "method", r.Method, "path", r.URL.Path, "code", code, "err", err)
	http.Error(w, err.Error(), code)
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // nobody is left to hear of it
	return nil
}

// list names what there is, shortened.
func list(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "nothing"
	}
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// tracked knows whether an answer was begun.
type tracked struct {
	http.ResponseWriter
	wrote bool
}

func (t *tracked) WriteHeader(code int) {
	t.wrote = true
	t.ResponseWriter.WriteHeader(code)
}

func (t *tracked) Write(b []byte) (int, error) {
	t.wrote = true
	return t.ResponseWriter.Write(b)
}

func (t *tracked) Flush() { _ = t.FlushError() }

func (t *tracked) FlushError() error {
	t.wrote = true
	return http.NewResponseController(t.ResponseWriter).Flush()
}

func (t *tracked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	t.wrote = true
	return http.NewResponseController(t.ResponseWriter).Hijack()
}

func (t *tracked) Unwrap() http.ResponseWriter { return t.ResponseWriter }
