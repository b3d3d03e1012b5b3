package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/server"
)

func session(s server.Session) string {
	return fmt.Sprintf("%s %v %+v %v", s.Container, s.Command, s.StreamOptions, s.Ports)
}

func TestLogQueries(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		query string
		want  logs.Options
		code  int
		text  string
	}{
		{query: "", want: logs.Options{}},
		{query: "tailLines=5", want: logs.Options{Tail: 5}},
		{query: "tailLines=0", want: logs.Options{Tail: -1}},
		{query: "tail=5", want: logs.Options{Tail: 5}},
		{query: "tail=all&tailLines=5", want: logs.Options{}},
		{query: "limitBytes=10", want: logs.Options{Limit: 10}},
		{query: "sinceTime=2026-01-02T12:00:00Z", want: logs.Options{Since: noon}},
		{query: "sinceTime=null", want: logs.Options{}},
		{query: "follow=true&timestamps=1", want: logs.Options{Follow: true, Timestamps: true}},
		{query: "follow=false&timestamps=0", want: logs.Options{}},
		{query: "follow", want: logs.Options{Follow: true}},
		{query: "stream=All", want: logs.Options{}},
		{query: "stream=Stderr", want: logs.Options{Stream: logs.Stderr}},
		{query: "tailLines=x", code: 400, text: `Unable to decode query: tailLines is no whole number: "x".`},
		{query: "sinceTime=noon", code: 400, text: `Unable to decode query: sinceTime is no RFC 3339 time: "noon".`},
		{query: "tailLines=", code: 400, text: `Unable to decode query: tailLines is no whole number: "".`},
		{query: "stream=", code: 422, text: "Invalid request: stream must be All, Stdout or Stderr."},
		{query: "sinceSeconds=1&sinceTime=", code: 422, text: "Invalid request: at most one of sinceTime and sinceSeconds may be given."},
		{query: "tailLines=-1", code: 422, text: "Invalid request: tailLines must be 0 or more."},
		{query: "limitBytes=0", code: 422, text: "Invalid request: limitBytes must be 1 or more."},
		{query: "sinceSeconds=0", code: 422, text: "Invalid request: sinceSeconds must be 1 or more."},
		{query: "sinceSeconds=1&sinceTime=2026-01-02T12:00:00Z", code: 422, text: "Invalid request: at most one of sinceTime and sinceSeconds may be given."},
		{query: "stream=stdout", code: 422, text: "Invalid request: stream must be All, Stdout or Stderr."},
		{query: "stream=Stdout&tailLines=1", code: 422, text: "Invalid request: tailLines and a stream exclude each other."},
	} {
		t.Run(tt.query, func(t *testing.T) {
			var got logs.Options
			h := node(t, func(c *server.Config) {
				c.Logs = logsFunc(func(_ context.Context, _ *v1.Pod, _ string, _ bool, o logs.Options) (io.ReadCloser, error) {
					got = o
					return io.NopCloser(strings.NewReader("")), nil
				})
			})
			w := get(h, "/containerLogs/default/web/app?"+tt.query)
			if tt.code == 0 {
				if w.Code != 200 || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tt.want) {
					t.Errorf("answer %d %q: %+v, want %+v", w.Code, w.Body, got, tt.want)
				}
				return
			}
			var m struct{ Message string }
			if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != tt.code || m.Message != tt.text {
				t.Errorf("answer %d %q, want %d %q", w.Code, w.Body, tt.code, tt.text)
			}
		})
	}
}

func TestSinceSecondsCountsBackFromNow(t *testing.T) {
	var got logs.Options
	h := node(t, func(c *server.Config) {
		c.Logs = logsFunc(func(_ context.Context, _ *v1.Pod, _ string, _ bool, o logs.Options) (io.ReadCloser, error) {
			got = o
			return nil, errors.New("enough")
		})
	})
	get(h, "/containerLogs/default/web/app?sinceSeconds=60")
	if ago := time.Since(got.Since); ago < time.Minute || ago > 2*time.Minute {
		t.Errorf("since %v ago", ago)
	}
	get(h, "/containerLogs/default/web/app?sinceSeconds=9223372036854775807")
	if got.Since.After(time.Unix(1, 0)) {
		t.Errorf("since %v", got.Since)
	}
}

func TestLogsOfUnknownThings(t *testing.T) {
	h, _ := full(t, nil)
	for _, tt := range []struct {
		path string
		code int
		text string
	}{
		{"/containerLogs/default/none/app", 404, `pod "none" does not exist in namespace "default"; there: job, web`},
		{"/containerLogs/default/web/none", 404, `container "none" not found in pod "web"; there: app, debug-1, init-db, shell`},
		{"/containerLogs/default/web/../../../etc/passwd", 307, ""},
		{"/containerLogs/default/web/..%2f..%2fetc%2fpasswd", 404, `not found in pod "web"`},
		{"/containerLogs/", 400, `{"message":"Missing podNamespace."}`},
		{"/containerLogs/default", 400, `{"message":"Missing podID."}`},
		{"/containerLogs/none/none/", 404, `pod "none" does not exist`},
		{"/containerLogs/default/web/app/more", 404, "the path is"},
	} {
		if w := get(h, tt.path); w.Code != tt.code || !strings.Contains(w.Body.String(), tt.text) {
			t.Errorf("%s: %d %q", tt.path, w.Code, w.Body)
		}
	}
}

func TestCase_c113_logsOfAPodThatInitializes(t *testing.T) {
	h := node(t, func(c *server.Config) {
		c.Logs = logsFunc(func(_ context.Context, pod *v1.Pod, container string, previous bool, _ logs.Options) (io.ReadCloser, error) {
			switch {
			case container == "init-db" && previous:
				return io.NopCloser(strings.NewReader("the one before\n")), nil
			case container == "init-db":
				return io.NopCloser(strings.NewReader("the last one\n")), nil
			default:
				return nil, fmt.Errorf("container %q in pod %q is waiting to start: PodInitializing", container, pod.Name)
			}
		})
	})
	for path, want := range map[string]string{
		"/containerLogs/default/web/init-db":               "200 the last one\n",
		"/containerLogs/default/web/init-db/":              "200 the last one\n",
		"/containerLogs/default/web/init-db?previous=true": "200 the one before\n",
		"/containerLogs/default/web/app":                   "400 container \"app\" in pod \"web\" is waiting to start: PodInitializing\n",
		"/containerLogs/default/web/":                      "400 {\"message\":\"Missing container name: one of app, debug-1, init-db, shell.\"}\n",
		"/containerLogs/default/web":                       "400 {\"message\":\"Missing container name: one of app, debug-1, init-db, shell.\"}\n",
	} {
		if w := get(h, path); fmt.Sprintf("%d %s", w.Code, w.Body) != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestErrorsOfLogsHaveCodes(t *testing.T) {
	for err, code := range map[error]int{
		errors.New("waiting to start"): 400, runtime.ErrNotFound: 400, runtime.ErrUnavailable: 503, errors.ErrUnsupported: 501,
	} {
		h := node(t, func(c *server.Config) {
			c.Logs = logsFunc(func(context.Context, *v1.Pod, string, bool, logs.Options) (io.ReadCloser, error) { return nil, err })
		})
		if w := get(h, "/containerLogs/default/web/app"); w.Code != code || !strings.Contains(w.Body.String(), err.Error()) {
			t.Errorf("%v: %d %q", err, w.Code, w.Body)
		}
	}
}

func TestFollowedLogsAreOutAtOnceAndEndWithTheClient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write := func(text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintf(f, "2026-01-02T03:04:05Z stdout F %s\n", text)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan error, 1)
	h := node(t, func(c *server.Config) {
		c.Logs = logsFunc(func(ctx context.Context, _ *v1.Pod, _ string, _ bool, o logs.Options) (io.ReadCloser, error) {
			rc, err := logs.Open(ctx, path, o)
			return noticed{rc, closed}, err
		})
	})
	s := httptest.NewServer(h)
	defer s.Close()
	write("one")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	query := url.Values{"follow": {"true"}, "tailLines": {"0"}}
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/containerLogs/default/web/app?"+query.Encode(), http.NoBody)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.Client().Do(req) // the header is out before any line
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, text := range []string{"two", "three"} {
		write(text)
		if got, err := lines.ReadString('\n'); err != nil || got != text+"\n" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	cancel()
	<-closed
}

// noticed tells when it is closed.
type noticed struct {
	io.ReadCloser
	closed chan<- error
}

func (n noticed) Close() error {
	err := n.ReadCloser.Close()
	n.closed <- err
	return err
}
