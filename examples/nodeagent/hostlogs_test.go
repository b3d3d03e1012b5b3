package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// logFolder is a folder as /var/log is, and what lies beside it.
func logFolder(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	dir := base + "/log"
	for name, text := range map[string]string{
		"log/syslog": "of all\n", "log/pods/web/0.log": "of a pod\n", "log/apt/apt.log": "of apt\n", "log/dpkg.log": "of dpkg\n", "shadow": "secret\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(base+"/"+name), 0o755), os.WriteFile(base+"/"+name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Mkdir(dir+"/containers", 0o755), os.Symlink(dir+"/pods/web/0.log", dir+"/containers/web.log"), os.Symlink("../pods", dir+"/containers/all"),
		os.Symlink(base+"/shadow", dir+"/out"), os.Symlink("../shadow", dir+"/up"), os.Symlink(base, dir+"/above"), syscall.Mkfifo(dir+"/pipe", 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestHostLogs(t *testing.T) {
	l := hostLogs{dir: logFolder(t)}
	for _, tt := range []struct {
		rule, path string
		code       int
		want       string // in the answer
	}{
		{"a file", "/logs/syslog", 200, "of all\n"},
		{"deeper", "/logs/pods/web/0.log", 200, "of a pod\n"},
		{"what there is", "/logs/", 200, `<a href="syslog">`},
		{"in a folder", "/logs/pods/web/", 200, `<a href="0.log">`},
		{"a link from the root, as those of containers are", "/logs/containers/web.log", 200, "of a pod\n"},
		{"a link that stays", "/logs/containers/all/web/0.log", 200, "of a pod\n"},
		{"a link out", "/logs/out", 403, ""},
		{"a link up and out", "/logs/up", 403, ""},
		{"through a link out", "/logs/above/shadow", 403, ""},
		{"a way up", "/logs/../shadow", 404, ""},
		{"nothing", "/logs/none", 404, ""},
		{"a pipe nobody writes to", "/logs/pipe", 403, ""},
		{"a query where none is answered", "/logs/syslog?query=apt", 200, "of all\n"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			w := httptest.NewRecorder()
			l.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, nil))
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%d %q", w.Code, w.Body)
			}
		})
	}
}

func TestHostLogsByQuery(t *testing.T) {
	l := hostLogs{dir: logFolder(t), query: true}
	programs := t.TempDir()
	script := "#!/bin/sh\nif [ \"$1\" = --field ]; then printf 'kubelet.service\\ncron@1.service\\n'; else echo \"$@\"; fi\n"
	if err := os.WriteFile(programs+"/journalctl", []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	const how = "--utc --no-pager --output=short-precise"
	for _, tt := range []struct {
		rule, path, query string
		code              int
		want              string
	}{
		{"a service of the journal", "", "query=kubelet", 200, how + " --unit=kubelet\n"},
		{"two", "", "query=kubelet&query=cron@1.service", 200, how + " --unit=kubelet --unit=cron@1.service\n"},
		{
			"a part of its log", "", "query=kubelet&sinceTime=2026-01-02T03:04:05%2B01:00&untilTime=2026-01-03T00:00:00Z&tailLines=7&pattern=a.*b&boot=-1", 200,
			how + " --since=2026-01-02 02:04:05 UTC --until=2026-01-03 00:00:00 UTC --lines=7 --unit=kubelet --grep=a.*b --boot=-1\n",
		},
		{"one that has a file", "", "query=syslog", 200, "of all\n"},
		{"one named for it", "", "query=dpkg", 200, "of dpkg\n"},
		{"one in a folder of its own", "", "query=apt", 200, "of apt\n"},
		{"one that nobody knows", "", "query=none", 200, "\nlog not found for none\n"},
		{"a part of a file", "", "query=syslog&tailLines=1", 200, "\nthe journal does not know syslog; files are read as a whole: leave out all but query\n"},
		{"a file", "", "query=/pods/web/0.log", 200, "of a pod\n"},
		{"a file through a link out", "", "query=above/shadow", 403, ""},
		{"a file above", "", "query=../shadow", 406, ""},
		{"nothing is asked: files", "syslog", "", 200, "of all\n"},
		{"a query below", "syslog", "query=kubelet", 406, ""},
		{"no service", "", "query=%20", 400, ""},
		{"only a part", "", "tailLines=1", 406, ""},
		{"no time", "", "query=kubelet&sinceTime=yesterday", 400, ""},
		{"no number", "", "query=kubelet&tailLines=few", 400, ""},
		{"too many lines", "", "query=kubelet&tailLines=100001", 406, ""},
		{"a boot to come", "", "query=kubelet&boot=1", 406, ""},
		{"an end before the beginning", "", "query=kubelet&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z", 406, ""},
		{"a pattern that is none", "", "query=kubelet&pattern=(", 406, ""},
		{"a file and a service", "", "query=kubelet&query=/syslog", 406, ""},
		{"two files", "", "query=/syslog&query=/dpkg.log", 406, ""},
		{"a part of a named file", "", "query=/syslog&tailLines=1", 406, ""},
		{"five services", "", "query=a&query=b&query=c&query=d&query=e", 406, ""},
		{"an option for a name", "", "query=--file=shadow", 406, ""},
		{"two words for a name", "", "query=" + url.QueryEscape("kubelet; id"), 406, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			w := httptest.NewRecorder()
			l.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/logs/"+tt.path+"?"+tt.query, nil))
			text, _ := io.ReadAll(w.Body)
			if w.Code != tt.code || tt.code == 200 && string(text) != tt.want || strings.Contains(string(text), "secret") {
				t.Errorf("%d %q", w.Code, text)
			}
		})
	}
}
