package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/headers":
			_, _ = io.WriteString(w, r.Host+" "+strings.Join(r.Header["X-A"], ","))
		case "/slow":
			<-r.Context().Done()
		case "/away":
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
		case "/broken":
			http.Error(w, "secret", http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	for _, c := range []struct {
		name string
		args string
		code int
		out  string // what it begins with
		err  string // part of it
	}{
		{"healthy", s.URL, 0, "success in ", ""},
		{"headers are sent along", "-header Host:web -header x-a:1 -header X-A:2 " + s.URL + "/headers", 0, "success", ""},
		{"a warning counts as healthy", s.URL + "/away", 0, "warning", ""},
		{"unhealthy", s.URL + "/broken", 1, "failure", ""},
		{"late", "-timeout 50ms " + s.URL + "/slow", 1, "failure", ""},
		{"a port", "tcp://" + s.Listener.Addr().String(), 0, "success", ""},
		{"a port without a number", "tcp://localhost", 2, "", "want http://"},
		{"something else", "gopher://x/", 2, "", "want http://"},
		{"no URL", "http://[::1/", 2, "", "missing ']'"},
		{"no target", "", 2, "", "usage: probe"},
		{"a header that is none", "-header x " + s.URL, 2, "", "want 'Name: value'"},
		{"help", "-h", 0, "", "usage: probe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, problems strings.Builder
			code := run(t.Context(), strings.Fields(c.args), &out, &problems)
			if code != c.code || !strings.HasPrefix(out.String(), c.out) || !strings.Contains(problems.String(), c.err) {
				t.Errorf("exit code %d\n%s\n%s", code, out.String(), problems.String())
			}
			if c.name == "headers are sent along" && !strings.HasSuffix(out.String(), "\nweb 1,2\n") {
				t.Error(out.String())
			}
		})
	}
}
