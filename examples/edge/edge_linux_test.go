package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/asuser"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// fleet is a server with one document.
type fleet struct {
	mu        sync.Mutex
	document  string
	version   int
	away      bool
	unchanged int // answers without a document
}

func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	etag := fmt.Sprintf("%q", fmt.Sprint("v", f.version))
	switch {
	case f.away:
		http.Error(w, "away", http.StatusServiceUnavailable)
	case r.Header.Get("If-None-Match") == etag:
		f.unchanged++
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("ETag", etag)
		fmt.Fprint(w, f.document)
	}
}

func (f *fleet) wants(pods ...string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.document, f.away = `{"items":[`+strings.Join(pods, ",")+`]}`, false
	f.version++
	return f.document
}

func (f *fleet) goAway() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = true
}

func (f *fleet) answered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unchanged
}

// pod is a manifest of a process.
func pod(name, policy, script string) string {
	b, _ := json.Marshal(script)
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"restartPolicy":%q,"terminationGracePeriodSeconds":2,
		"containers":[{"name":"c","image":"host","command":["sh","-c",%s]}]}}`, name, policy, b)
}

func TestAsAUserRunsIt(t *testing.T) {
	p := asuser.Build(t)
	f := &fleet{}
	s := httptest.NewServer(f)
	defer s.Close()
	push, file := filepath.Join(p.Dir, "push"), filepath.Join(p.Dir, "status.json")
	args := []string{"-url", s.URL, "-every", "200ms", "-root", filepath.Join(p.Dir, "root"), "-push", push, "-status", file}
	t.Cleanup(func() { removeAll(t, filepath.Join(p.Dir, "root")) })
	if err := errors.Join(unix.Mkfifo(push, 0o600), os.Chmod(push, 0o666)); err != nil { // whoever runs the agent
		t.Fatal(err)
	}
	server := pod("server", "Always", `trap "exit 0" TERM; while sleep 0.1; do :; done`)

	f.wants(server)
	e := p.Start(nil, args...)
	told(t, file, "default/server Pending false", "default/server Running true")
	for f.answered() == 0 {
		time.Sleep(10 * time.Millisecond)
	}

	// Pushed, while the server that is asked tells nothing new.
	c, err := os.OpenFile(push, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(c, "nonsense")
	for unread := 1; unread > 0; time.Sleep(time.Millisecond) { // what comes with it would be lost
		if unread, err = unix.IoctlGetInt(int(c.Fd()), unix.TIOCINQ); err != nil {
			t.Fatal(err)
		}
	}
	end := filepath.Join(p.Dir, "end")
	fmt.Fprintf(c, `{"items":[%s,%s]}`, server, pod("job", "Never", "until [ -e "+end+" ]; do sleep 0.1; done; exit 3"))
	c.Close()
	told(t, file, "default/job Running true")
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	told(t, file, "default/job Running true", "default/job Failed false", "default/job finished")

	// Nobody can be reached: what was wanted last goes on.
	f.goAway()
	e.Interrupt()
	before := firsts(p.Dir)
	e = p.Start(nil, args...)
	told(t, file, "default/server Running true")
	if after := firsts(p.Dir); len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("the server ran as %v and runs as %v", before, after)
	}

	f.wants()
	told(t, file, "default/server Running true", "default/server finished")
	e.Interrupt()
	if left := running(p.Dir); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

// told waits until the file has these lines, those of one pod in this order.
func told(t *testing.T, file string, want ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var got []string
		b, _ := os.ReadFile(file)
		for l := range strings.Lines(string(b)) {
			var s line
			if err := json.Unmarshal([]byte(l), &s); err != nil {
				break // not whole yet
			}
			text := fmt.Sprint(s.Pod, " ", s.Phase, " ", s.Ready)
			if s.Finished {
				text = s.Pod + " finished"
			}
			got = append(got, text)
		}
		missing := asuser.Missing(got, want)
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not told: %q\nbut\n%s", missing, b)
		}
	}
}

// running are the processes that have that directory in their environment.
func running(dir string) (pids []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range environs {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("="+dir+"/root/")) && bytes.Contains(b, []byte("KUBELETKIT_CONTAINER=")) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// firsts are the first processes of containers: each leads a session.
func firsts(dir string) []string {
	return slices.DeleteFunc(running(dir), func(pid string) bool {
		n, _ := strconv.Atoi(pid)
		session, err := unix.Getsid(n)
		return err != nil || session != n
	})
}

// removeAll removes what a test that failed leaves running.
func removeAll(t *testing.T, root string) {
	t.Helper()
	e, err := process.New(process.Config{Root: filepath.Join(root, "engine")})
	if err != nil {
		t.Fatal(err)
	}
	list, err := e.ListSandboxes(context.Background(), runtime.Filter{})
	for _, s := range list {
		err = errors.Join(err, e.RemoveSandbox(context.Background(), s.ID))
	}
	if err != nil {
		t.Error(err)
	}
}
