package server_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

func TestNewWantsPods(t *testing.T) {
	if _, err := server.New(server.Config{}); err == nil {
		t.Error("a server without Pods was made")
	}
}

func TestPodsIsAListWithKindAndVersion(t *testing.T) {
	w := get(node(t, nil), "/pods")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || !strings.HasPrefix(w.Body.String(), `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{`) {
		t.Fatalf("answer %d %v %s", w.Code, w.Header(), w.Body)
	}
	var list v1.PodList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Items) != 2 || list.Items[0].Name != "job" || list.Items[1].Name != "web" {
		t.Errorf("got %v, %v", list.Items, err)
	}
	if w := get(node(t, func(c *server.Config) { c.Pods = pods{} }), "/pods/"); !strings.Contains(w.Body.String(), `"items":[]`) {
		t.Errorf("no pods: %s", w.Body)
	}
}

func TestRunningPodsAreWhatTheRuntimeRuns(t *testing.T) {
	h := node(t, func(c *server.Config) {
		c.Running = running{
			{PodRef: runtime.PodRef{Namespace: "default", Name: "web", UID: "u1"}, Containers: []runtime.Container{
				{Name: "app", Image: "busybox", State: runtime.Running}, {Name: "app", Image: "old", State: runtime.Exited},
			}},
			{PodRef: runtime.PodRef{Namespace: "default", Name: "dead", UID: "u3"}, Containers: []runtime.Container{{Name: "x", State: runtime.Exited}}},
			{PodRef: runtime.PodRef{Namespace: "default", Name: "box", UID: "u4"}, Sandboxes: []runtime.Sandbox{{Ready: true}}},
		}
	})
	for _, path := range []string{"/runningpods", "/runningpods/"} {
		var list v1.PodList
		if err := json.Unmarshal(get(h, path).Body.Bytes(), &list); err != nil || len(list.Items) != 2 {
			t.Fatalf("%s: %+v, %v", path, list, err)
		}
		if web := list.Items[1]; web.UID != "u1" || len(web.Spec.Containers) != 1 || web.Spec.Containers[0].Image != "busybox" {
			t.Errorf("%s: %+v", path, web)
		}
	}
}

func TestHealth(t *testing.T) {
	h := node(t, func(c *server.Config) {
		c.Health = map[string]func() error{"syncloop": func() error { return errors.New("stuck since noon") }, "pleg": func() error { return nil }}
	})
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{"/healthz", 500, "[+]ping ok\n[+]pleg ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"},
		{"/healthz?exclude=syncloop", 200, "ok"},
		{"/healthz?verbose&exclude=syncloop", 200, "[+]ping ok\n[+]pleg ok\n[+]syncloop excluded: ok\nhealthz check passed\n"},
		{"/healthz/ping", 200, "ok"},
		{"/healthz/pleg", 200, "ok"},
		{"/healthz/syncloop", 500, "internal server error: stuck since noon\n"},
		{"/healthz/none", 404, "there is no check \"none\"; there: ping, pleg, syncloop\n"},
	} {
		if w := get(h, tt.path); w.Code != tt.code || w.Body.String() != tt.want {
			t.Errorf("%s: %d %q", tt.path, w.Code, w.Body)
		}
	}
}

// Pages that a setting switches off answer as the kubelet's do, to any method.
func TestPagesThatAreSwitchedOff(t *testing.T) {
	h := node(t, nil)
	for path, want := range map[string]string{
		"/logs/syslog": "logs endpoint is disabled.\n", "/debug/pprof/heap": "profiling endpoint is disabled.\n",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if w := ask(h, method, path, token); w.Code != http.StatusMethodNotAllowed || w.Body.String() != want {
				t.Errorf("%s %s: %d %q", method, path, w.Code, w.Body)
			}
		}
	}
}

func TestPathsOfAbsentPartsAre501(t *testing.T) {
	h := node(t, nil)
	for _, path := range []string{"/runningpods/", "/containerLogs/default/web/app", "/configz", "/debug/pods", "/debug/gc", "/exec/default/web/app?command=sh&output=1", "/attach/default/web/app?output=1", "/portForward/default/web?port=1"} {
		if w := upgrade(h, "GET", path, token, "websocket"); w.Code != http.StatusNotImplemented {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
		}
	}
	if w := get(h, "/metrics"); w.Code != http.StatusNotFound {
		t.Errorf("/metrics: %d", w.Code)
	}
}

func TestWrongMethodsAre405(t *testing.T) {
	h, _ := full(t, nil)
	for path, allow := range map[string]string{
		"/pods": "GET", "/runningpods/": "GET", "/containerLogs/default/web/app": "GET", "/debug/pods": "GET",
		"/exec/default/web/app": "GET, POST", "/portForward/default/web": "GET, POST",
	} {
		for _, method := range []string{"DELETE", "HEAD", "PUT"} {
			if w := ask(h, method, path, token); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != allow {
				t.Errorf("%s %s: %d, allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func TestConfigz(t *testing.T) {
	h, _ := full(t, nil)
	if w := get(h, "/configz"); w.Body.String() != `{"kubeletconfig":{"kind":"KubeletConfiguration"}}` {
		t.Errorf("got %s", w.Body)
	}
}

func TestAPanicEndsOneRequest(t *testing.T) {
	var log strings.Builder
	h := node(t, func(c *server.Config) {
		c.Observe.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Metrics = map[string]http.Handler{
			"/metrics": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("before") }),
			"/metrics/late": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "half")
				panic("after")
			}),
		}
	})
	s := httptest.NewServer(h)
	defer s.Close()
	fetch := func(path string) (int, string, error) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := s.Client().Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	if code, body, err := fetch("/metrics"); code != 500 || body != "internal error\n" || err != nil {
		t.Errorf("before the answer: %d %q %v", code, body, err)
	}
	if _, _, err := fetch("/metrics/late"); err == nil {
		t.Error("half an answer looks whole")
	}
	if code, _, err := fetch("/pods"); code != 200 || err != nil {
		t.Errorf("afterwards: %d %v", code, err)
	}
	if !strings.Contains(log.String(), "panic=before") || !strings.Contains(log.String(), "panic=after") {
		t.Errorf("log: %s", log.String())
	}
}

func TestRequestsToAReadOnlyServerAreCountedApart(t *testing.T) {
	m := &metric{}
	h, _ := full(t, func(c *server.Config) { c.Observe.Metrics, c.ReadOnly = m, true })
	get(h, "/pods")
	if got := m.values["kubelet_http_requests_total{GET,pods,readonly,false}"]; got != 1 {
		t.Errorf("%v requests of %v", got, m.values)
	}
}

func TestRequestsAreCounted(t *testing.T) {
	m := &metric{}
	h, _ := full(t, func(c *server.Config) { c.Observe.Metrics = m })
	get(h, "/pods")
	get(h, "/pods/")
	get(h, "/metrics/resource")
	get(h, "/no/such/path")
	ask(h, "BREW", "/containerLogs/default/web/app", token)
	upgrade(h, "POST", "/exec/default/web/app?command=sh&output=1", token, "SPDY/3.1")
	upgrade(h, "POST", "/portForward/default/web", token, "SPDY/3.1")
	ask(h, "GET", "/healthz", "")
	for labels, want := range map[string]float64{
		"GET,pods,readwrite,false":             2,
		"GET,metrics/resource,readwrite,false": 1,
		"GET,other,readwrite,false":            1,
		"other,containerLogs,readwrite,false":  1,
		"POST,exec,readwrite,true":             1,
		"POST,portForward,readwrite,false":     1,
		"GET,healthz,readwrite,false":          1,
	} {
		if got := m.values["kubelet_http_requests_total{"+labels+"}"]; got != want {
			t.Errorf("%s: %v requests, want %v", labels, got, want)
		}
		if got, ok := m.values["kubelet_http_inflight_requests{"+labels+"}"]; got != 0 || !ok {
			t.Errorf("%s: %v under way", labels, got)
		}
		if m.values["kubelet_http_requests_duration_seconds{"+labels+"}"] == 0 {
			t.Errorf("%s: no duration", labels)
		}
	}
}

func TestDebugPodsIsTheJournal(t *testing.T) {
	j := &observe.Journal{}
	j.Event(observe.Event{About: observe.Pod("default", "web", "u1"), Reason: "Pulled", Message: "image is\there\nnow"})
	_, step := j.Begin(t.Context(), observe.Pod("default", "web", "u1"), "sync")
	step.End(errors.New("no room"))
	h := node(t, func(c *server.Config) { c.Timeline = j })

	var all []server.PodTimeline
	if err := json.Unmarshal(get(h, "/debug/pods?format=json").Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Name != "job" || all[0].LastEvent != nil || all[1].UID != "u1" || all[1].LastEvent.Reason != "Pulled" || len(all[1].Timeline) != 2 {
		t.Errorf("got %+v", all)
	}
	all = nil
	if err := json.Unmarshal(get(h, "/debug/pods?format=json&brief=1").Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[1].LastEvent == nil || all[1].Timeline != nil {
		t.Errorf("brief: %+v", all)
	}

	w := get(h, "/debug/pods")
	lines := strings.Split(w.Body.String(), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "POD") || !strings.Contains(lines[1], "nothing yet") || !strings.Contains(lines[2], "image is here now") || !strings.Contains(lines[3], "no room") {
		t.Errorf("table:\n%s", w.Body)
	}
	if w := get(h, "/debug/pods?format=xml"); w.Code != 400 {
		t.Errorf("unknown format: %d", w.Code)
	}
}

func TestSessions(t *testing.T) {
	for _, tt := range []struct {
		name, path, protocol string
		code                 int
		want                 string // what is said, or the session
	}{
		{"exec", "/exec/default/web/app?command=ls&command=-l&input=1&output=1&error=1", "SPDY/3.1", 200, "app [ls -l] {Stdin:true Stdout:true Stderr:true TTY:false} []"},
		{"only 1 is true", "/exec/default/web/app?command=ls&input=true&output=1", "SPDY/3.1", 200, "app [ls] {Stdin:false Stdout:true Stderr:false TTY:false} []"},
		{"a terminal has no stderr", "/exec/default/web/app?command=ls&output=1&error=1&tty=1", "SPDY/3.1", 200, "app [ls] {Stdin:false Stdout:true Stderr:false TTY:true} []"},
		{"exec with the uid", "/exec/default/web/u1/app?command=ls&output=1", "SPDY/3.1", 200, "app [ls] {Stdin:false Stdout:true Stderr:false TTY:false} []"},
		{"exec with another uid", "/exec/default/web/u9/app?command=ls&output=1", "SPDY/3.1", 404, `pod "web" with uid "u9" does not exist`},
		{"exec into an init container", "/exec/default/web/init-db?command=ls&output=1", "SPDY/3.1", 200, "init-db [ls] {Stdin:false Stdout:true Stderr:false TTY:false} []"},
		{"exec into an ephemeral container", "/exec/default/web/debug-1?command=ls&output=1", "SPDY/3.1", 200, "debug-1 [ls] {Stdin:false Stdout:true Stderr:false TTY:false} []"},
		{"exec without streams", "/exec/default/web/app?command=ls", "SPDY/3.1", 400, "at least 1 of stdin, stdout, stderr"},
		{"exec without a command", "/exec/default/web/app?output=1", "SPDY/3.1", 400, "a command is needed"},
		{"exec without an upgrade", "/exec/default/web/app?command=ls&output=1", "", 400, "an upgrade"},
		{"exec into an unknown pod", "/exec/default/none/app?command=ls&output=1", "SPDY/3.1", 404, `pod "none" does not exist in namespace "default"; there: job, web`},
		{"exec into an unknown container", "/exec/default/web/none?command=ls&output=1", "SPDY/3.1", 404, `container "none" not found in pod "web"; there: app, debug-1, init-db, shell`},
		{"exec in an unknown namespace", "/exec/other/web/app?command=ls&output=1", "SPDY/3.1", 404, `there: nothing`},
		{"attach takes tty from the container", "/attach/default/web/shell?output=1&error=1", "SPDY/3.1", 200, "shell [] {Stdin:false Stdout:true Stderr:false TTY:true} []"},
		{"attach ignores tty of the query", "/attach/default/web/app?output=1&tty=1", "SPDY/3.1", 200, "app [] {Stdin:false Stdout:true Stderr:false TTY:false} []"},
		{"port-forward by SPDY names no ports", "/portForward/default/web", "SPDY/3.1", 200, " [] {Stdin:false Stdout:false Stderr:false TTY:false} []"},
		{"port-forward by WebSocket must", "/portForward/default/web", "websocket", 400, `query parameter "port" is required`},
		{"port-forward of several ports", "/portForward/default/web/u1?port=80,443&port=65535", "websocket", 200, " [] {Stdin:false Stdout:false Stderr:false TTY:false} [80 443 65535]"},
		{"port 0", "/portForward/default/web?port=0", "websocket", 400, `"0" is no port`},
		{"port 65536", "/portForward/default/web?port=65536", "websocket", 400, `"65536" is no port`},
		{"a port by name", "/portForward/default/web?port=http", "websocket", 400, `"http" is no port`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, s := full(t, nil)
			w := ask(h, "POST", tt.path, token)
			if tt.protocol != "" {
				w = upgrade(h, "POST", tt.path, token, tt.protocol)
			}
			said := w.Body.String()
			if len(s.got) > 0 {
				said = session(s.got[0])
			}
			if w.Code != tt.code || !strings.Contains(said, tt.want) {
				t.Errorf("answer %d %q, want %d %q", w.Code, said, tt.code, tt.want)
			}
		})
	}
}

func TestErrorsOfStreamsHaveCodes(t *testing.T) {
	for err, code := range map[error]int{
		errors.ErrUnsupported: 501, runtime.ErrNotFound: 404, runtime.ErrUnavailable: 503, errors.New("other"): 500,
	} {
		h, s := full(t, nil)
		s.err = err
		if w := upgrade(h, "POST", "/exec/default/web/app?command=ls&output=1", token, "SPDY/3.1"); w.Code != code {
			t.Errorf("%v: %d", err, w.Code)
		}
	}
}

func TestOfTwoPodsOfOneNameTheOneThatStaysIsMeant(t *testing.T) {
	going, staying := podOf("web", "u1", "app"), podOf("web", "u2", "app")
	going.DeletionTimestamp = new(metav1.Now())
	for _, order := range []pods{{going, staying}, {staying, going}} {
		h, s := full(t, func(c *server.Config) { c.Pods = order })
		upgrade(h, "POST", "/attach/default/web/app?output=1", token, "SPDY/3.1")
		if len(s.got) != 1 || s.got[0].Pod.UID != "u2" {
			t.Errorf("got %+v", s.got)
		}
	}
}
