//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// user runs the built program as an ordinary user does.
type user struct {
	*testing.T
	program, root, manifests string
	port                     int
}

func newUser(t *testing.T) *user {
	t.Helper()
	dir, err := os.MkdirTemp("", "standalone") // t.TempDir lets no other user in
	if err != nil {
		t.Fatal(err)
	}
	u := &user{T: t, program: filepath.Join(dir, "standalone"), root: filepath.Join(dir, "root"), manifests: filepath.Join(dir, "manifests"), port: freePort(t)}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", u.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, d := range []string{u.root, u.manifests} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.ReplaceAll(b, []byte("18080"), fmt.Append(nil, u.port))
		if err := os.WriteFile(filepath.Join(u.manifests, filepath.Base(f)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := errorsOf(os.Chmod(dir, 0o755), os.Chown(u.root, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = u.command(context.Background(), "-root", u.root, "-stop").Run() })
	return u
}

const nobody = 65534

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (u *user) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, u.program, args...)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// agent is the program at work.
type agent struct {
	*user
	cmd *exec.Cmd

	mu    sync.Mutex
	lines []string // without the time
	done  chan struct{}
}

func (u *user) start() *agent {
	u.Helper()
	a := &agent{user: u, cmd: u.command(u.Context(), "-root", u.root, u.manifests), done: make(chan struct{})}
	out, err := a.cmd.StdoutPipe()
	if err == nil {
		err = a.cmd.Start()
	}
	if err != nil {
		u.Fatal(err)
	}
	go func() { // ends with the program
		defer close(a.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			a.mu.Lock()
			a.lines = append(a.lines, strings.Join(strings.Fields(s.Text())[1:], " "))
			a.mu.Unlock()
		}
	}()
	return a
}

// prints waits until all these lines were printed, those of one pod in this order; others may come between.
func (a *agent) prints(want ...string) {
	a.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		a.mu.Lock()
		got := slices.Clone(a.lines)
		a.mu.Unlock()
		missing := missing(got, want)
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			a.Fatalf("not printed: %q\nbut\n%s", missing, strings.Join(got, "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// missing are the lines of want that are not in got, in order for each pod.
func missing(got, want []string) (out []string) {
	next := map[string]int{} // by pod, where to look
	for _, w := range want {
		pod, _, _ := strings.Cut(w, " ")
		i := slices.Index(got[min(next[pod], len(got)):], w)
		if i < 0 {
			out = append(out, w)
			continue
		}
		next[pod] += i + 1
	}
	return out
}

// interrupt is Ctrl-C.
func (a *agent) interrupt() {
	a.Helper()
	if err := a.cmd.Process.Signal(os.Interrupt); err != nil {
		a.Fatal(err)
	}
	<-a.done
	if err := a.cmd.Wait(); err != nil {
		a.Errorf("after Ctrl-C: %v", err)
	}
}

// ask asks the program over its socket.
func (u *user) ask(method, path string) (string, http.Header) {
	u.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(u.root, "api"))
	}}
	req, err := http.NewRequestWithContext(u.Context(), method, "http://node"+path, nil)
	if err != nil {
		u.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		u.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		u.Fatalf("%s: %s %v\n%s", path, resp.Status, err, b)
	}
	return string(b), resp.Header
}

// containers are the IDs of running containers by name, as /pods tells them.
func (u *user) containers() map[string]string {
	u.Helper()
	body, _ := u.ask(http.MethodGet, "/pods")
	var pods v1.PodList
	if err := json.Unmarshal([]byte(body), &pods); err != nil {
		u.Fatal(err)
	}
	ids := map[string]string{}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil {
				ids[p.Name+"/"+c.Name] = c.ContainerID
			}
		}
	}
	return ids
}

func TestAsAUserRunsIt(t *testing.T) {
	u := newUser(t)
	a := u.start()
	a.prints(
		"default/web-node Running 0/1 ready",
		"default/web-node Running 1/1 ready",
		"default/exec-node Running 0/1 ready",
		"default/exec-node Running 1/1 ready",
		"default/job-node Running 1/1 ready",
		"default/job-node Succeeded 0/1 ready",
		"default/job-node has ended",
		"default/crashloop-node Running 1/1 ready",
		"default/crashloop-node Running 1/1 ready, restarts: 1",
		`default/crashloop-node Running 0/1 ready, restarts: 1 (app CrashLoopBackOff after exit code 3 "out of ideas")`,
		`default/image-node Pending 0/1 ready (app ErrImageNeverPull: image "nginx:1" is neither the word host nor the absolute path of a directory: not found)`,
	)

	if log, _ := u.ask(http.MethodGet, "/containerLogs/default/job-node/job"); log != "the answer is forty-two\n" {
		t.Errorf("log of the job: %q", log)
	}
	out, header := u.ask(http.MethodPost, "/run/default/exec-node/app?cmd=sh&cmd=-c&cmd=ls%3Bid%20-u%3Bexit%204")
	if want := fmt.Sprintf("ready\n%d\n", u.uid()); out != want || header.Get("Exit-Code") != "4" {
		t.Errorf("run: %q, exit code %s; want %q and 4", out, header.Get("Exit-Code"), want)
	}

	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/fail", u.port))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	a.prints(
		"default/web-node Running 1/1 ready",
		"default/web-node Running 0/1 ready",
		"default/web-node Running 0/1 ready, restarts: 1",
		"default/web-node Running 1/1 ready, restarts: 1",
	)
	if log, _ := u.ask(http.MethodGet, "/containerLogs/default/web-node/web?previous=true"); !strings.HasSuffix(log, "I am not well\ngood-bye\n") {
		t.Errorf("log of the instance before: %q", log)
	}

	before := u.containers()
	a.interrupt()
	a = u.start()
	a.prints("default/web-node Running 1/1 ready, restarts: 1", "default/exec-node Running 1/1 ready")
	after := u.containers()
	for _, name := range []string{"web-node/web", "exec-node/app"} {
		if before[name] == "" || before[name] != after[name] {
			t.Errorf("%s was %q before the restart and is %q after it", name, before[name], after[name])
		}
	}
	a.interrupt()

	stop := u.command(t.Context(), "-root", u.root, "-stop")
	said, err := stop.Output()
	if err != nil {
		t.Fatal(err)
	}
	ended := slices.Sorted(strings.Lines(string(said)))
	want := []string{"default/crashloop-node has ended\n", "default/exec-node has ended\n", "default/image-node has ended\n", "default/job-node has ended\n", "default/web-node has ended\n"}
	if diff := cmp.Diff(want, ended); diff != "" {
		t.Error(diff)
	}
	if left := u.left(); len(left) > 0 {
		t.Errorf("still there: %q", left)
	}
}

func (u *user) uid() int {
	if os.Geteuid() == 0 {
		return nobody
	}
	return os.Geteuid()
}

// left are processes of pods that still run.
func (u *user) left() (out []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range environs {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("="+u.root)) {
			out = append(out, string(b))
		}
	}
	return out
}

func TestMissingHeedsTheOrderOfOnePod(t *testing.T) {
	got := []string{"a 1", "b 1", "a 2"}
	for _, c := range []struct{ want, missing []string }{
		{[]string{"a 1", "a 2", "b 1"}, nil},
		{[]string{"a 2", "a 1"}, []string{"a 1"}},
		{[]string{"a 2", "a 2"}, []string{"a 2"}},
	} {
		if diff := cmp.Diff(c.missing, missing(got, c.want)); diff != "" {
			t.Error(c.want, diff)
		}
	}
}
