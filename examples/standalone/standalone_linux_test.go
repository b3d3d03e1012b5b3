package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/asuser"
)

// plain takes the time from the front of a line, and the padding.
func plain(line string) string { return strings.Join(strings.Fields(line)[1:], " ") }

func TestAsAUserRunsIt(t *testing.T) {
	p, port := asuser.Build(t), fmt.Sprint(asuser.FreePort(t))
	// What is to be seen for a while stays until it was: containers wait for the test, instead of for a second.
	gate := func(name string) string { return filepath.Join(p.Dir, "may-"+name) }
	wait := func(name string) string { return "until rmdir " + gate(name) + " 2>/dev/null; do sleep 0.1; done" }
	let := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.Mkdir(gate(name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	manifests, api := p.Manifests("manifests",
		"[standalone, web, --port=18080]", "[sh, -c, '"+wait("serve")+"; exec standalone web --port="+port+"']",
		"18080", port,
		"sleep 1; touch ready", wait("be-ready")+"; touch ready",
		"echo the answer is $answer; sleep 1", "echo the answer is $answer; "+wait("finish"),
		"sleep 1; echo out of ideas", wait("crash")+"; echo out of ideas",
	), filepath.Join(p.Dir, "api")
	t.Cleanup(func() { _ = p.Command(context.Background(), "-root", p.Dir, "-stop").Run() })
	a := p.Start(plain, "-root", p.Dir, manifests)
	a.Prints(
		"default/web-node Running 0/1 ready",
		"default/exec-node Running 0/1 ready",
		"default/job-node Running 1/1 ready",
		"default/crashloop-node Running 1/1 ready",
	)
	let("serve", "be-ready", "finish", "crash")
	a.Prints("default/crashloop-node Running 1/1 ready", "default/crashloop-node Running 1/1 ready, restarts: 1")
	let("crash")
	a.Prints(
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

	if log, _ := p.Ask(api, http.MethodGet, "/containerLogs/default/job-node/job"); log != "the answer is forty-two\n" {
		t.Errorf("log of the job: %q", log)
	}
	out, header := p.Ask(api, http.MethodPost, "/run/default/exec-node/app?cmd=sh&cmd=-c&cmd=ls%3Bid%20-u%3Bexit%204")
	if want := fmt.Sprintf("ready\n%d\n", p.UID); out != want || header.Get("Exit-Code") != "4" {
		t.Errorf("run: %q, exit code %s; want %q and 4", out, header.Get("Exit-Code"), want)
	}

	for path, remedy := range map[string]string{
		"/exec/default/exec-node/app?command=sh&input=1&output=1&tty=1": "POST /run/default/exec-node/app?cmd=",
		"/attach/default/exec-node/app?output=1":                        "/containerLogs/default/exec-node/app?follow=true",
		"/portForward/default/exec-node":                                "the addresses of this machine",
	} {
		if code, said := upgrade(t, api, path); code != http.StatusNotImplemented || !strings.Contains(said, remedy) {
			t.Errorf("%s: %d %s", path, code, said)
		}
	}

	resp, err := http.Get("http://127.0.0.1:" + port + "/fail")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	a.Prints(
		"default/web-node Running 1/1 ready",
		"default/web-node Running 0/1 ready",
		"default/web-node Running 0/1 ready, restarts: 1",
	)
	let("serve")
	a.Prints("default/web-node Running 0/1 ready, restarts: 1", "default/web-node Running 1/1 ready, restarts: 1")
	if log, _ := p.Ask(api, http.MethodGet, "/containerLogs/default/web-node/web?previous=true"); !strings.HasSuffix(log, "I am not well\ngood-bye\n") {
		t.Errorf("log of the instance before: %q", log)
	}

	before := containers(t, p, api)
	a.Interrupt()
	a = p.Start(plain, "-root", p.Dir, manifests)
	a.Prints("default/web-node Running 1/1 ready, restarts: 1", "default/exec-node Running 1/1 ready")
	after := containers(t, p, api)
	for _, name := range []string{"web-node/web", "exec-node/app"} {
		if before[name] == "" || before[name] != after[name] {
			t.Errorf("%s was %q before the restart and is %q after it", name, before[name], after[name])
		}
	}
	a.Interrupt()

	said, err := p.Command(t.Context(), "-root", p.Dir, "-stop").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "default/crashloop-node has ended\ndefault/exec-node has ended\ndefault/image-node has ended\ndefault/job-node has ended\ndefault/web-node has ended\n"
	if diff := cmp.Diff(want, strings.Join(slices.Sorted(strings.Lines(string(said))), "")); diff != "" {
		t.Error(diff)
	}
	if left := processes(p.Dir); len(left) > 0 {
		t.Errorf("still there: %q", left)
	}
}

// upgrade asks for a session, as kubectl has it asked for.
func upgrade(t *testing.T, api, path string) (code int, said string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", api)
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://node"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "SPDY/3.1")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// containers are the IDs of running containers by name, as /pods tells them.
func containers(t *testing.T, p *asuser.Program, api string) map[string]string {
	t.Helper()
	body, _ := p.Ask(api, http.MethodGet, "/pods")
	var pods v1.PodList
	if err := json.Unmarshal([]byte(body), &pods); err != nil {
		t.Fatal(err)
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

// processes are those that have that directory in their environment.
func processes(dir string) (out []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range environs {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("="+dir)) {
			out = append(out, string(b))
		}
	}
	return out
}
