package firstlight

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// TestFollow reads the job's log while it is written.
func (n *node) TestFollow(t *testing.T) {
	n.seen.await(t, "job-node", "the start of the job", patience, func(l []instance) bool { return len(l) == 1 && !l[0].started.IsZero() })
	n.runs(t, "default", "job-node", "runs", patience, phase(v1.PodRunning))
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	a := n.open(ctx, t, n.token(t), "/containerLogs/default/job-node/job?follow=true&timestamps=true")
	if a.code != http.StatusOK {
		t.Fatal(a.status)
	}
	var late []time.Duration
	steps := 0
	for lines := bufio.NewScanner(a.body); lines.Scan(); {
		stamp, text, _ := strings.Cut(lines.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		if strings.Contains(text, " step ") {
			steps++
		}
		late = append(late, time.Since(at))
	}
	ended := time.Now()
	if ctx.Err() != nil {
		t.Fatal("the log was still followed long after the end of its container")
	}
	ran := n.seen.await(t, "job-node", "the end of the job", patience, func(l []instance) bool { return len(l) == 1 && !l[0].finished.IsZero() })
	if steps != 10 {
		t.Errorf("%d of 10 steps were read", steps)
	}
	// The first lines may have been there before.
	t.Logf("lines came at most %v after they were written, the end %v after that of the container", slices.Max(late[3:]).Round(time.Millisecond), ended.Sub(ran[0].finished).Round(time.Millisecond))
	if worst := slices.Max(late[3:]); worst > 5*time.Second {
		t.Errorf("a line came %v after it was written", worst)
	}
}

// TestLogs reads parts of logs.
func (n *node) TestLogs(t *testing.T) {
	const path = "/containerLogs/default/job-node/job"
	all := n.get(t, path)
	lines := slices.Collect(strings.Lines(all))
	if len(lines) != 11 || !strings.Contains(lines[10], "done, exit code 0") {
		t.Fatalf("the whole log has %d lines: %s", len(lines), all)
	}
	if got := n.get(t, path+"?tailLines=3"); got != strings.Join(lines[8:], "") {
		t.Errorf("the last three lines are %q", got)
	}
	if got := n.get(t, path+"?tailLines=0"); got != "" {
		t.Errorf("the last zero lines are %q", got)
	}
	if got := n.get(t, path+"?limitBytes=10"); got != all[:10] {
		t.Errorf("the first ten bytes are %q", got)
	}
	for line := range strings.Lines(n.get(t, path+"?timestamps=true")) {
		stamp, text, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || !slices.Contains(lines, text) {
			t.Errorf("line with its time: %q", line)
		}
	}
	if got := n.get(t, path+"?sinceSeconds=3600"); got != all {
		t.Errorf("the last hour is %q", got)
	}
	if got := n.get(t, "/containerLogs/default/init-node/second"); !strings.Contains(got, "now it is my turn") {
		t.Errorf("the log of an init container is %q", got)
	}
	for path, want := range map[string]int{
		path + "?previous=true":                  http.StatusBadRequest,
		"/containerLogs/default/job-node/nobody": http.StatusNotFound,
		"/containerLogs/default/nobody/job":      http.StatusNotFound,
		path + "?tailLines=-1":                   http.StatusUnprocessableEntity,
		path + "?tailLines=x":                    http.StatusBadRequest,
	} {
		if a := n.open(t.Context(), t, n.token(t), path); a.code != want {
			t.Errorf("%s answers %s, want %d", path, a.status, want)
		}
	}
}

// TestExecs runs commands as clients do: over SPDY, over the WebSocket protocol that runtimes speak, and as kubectl, which
// tries a newer one first.
func (n *node) TestExecs(t *testing.T) {
	config := &rest.Config{Host: n.url(""), BearerToken: n.token(t), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	spdy := func(u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	}
	for name, executor := range map[string]func(*url.URL) (remotecommand.Executor, error){
		"SPDY": spdy,
		"WebSocket": func(u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutorForProtocols(config, http.MethodGet, u.String(), "v4.channel.k8s.io")
		},
		"kubectl": func(u *url.URL) (remotecommand.Executor, error) {
			first, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
			if err != nil {
				return nil, err
			}
			second, err := spdy(u)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewFallbackExecutor(first, second, httpstream.IsUpgradeFailure)
		},
	} {
		t.Run(name, protocol{n, executor}.TestCommands)
	}
}

// protocol is one way to run commands in the containers of a node.
type protocol struct {
	*node

	executor func(*url.URL) (remotecommand.Executor, error)
}

func (n protocol) TestCommands(t *testing.T) {
	run := func(stdin string, command ...string) (stdout, stderr string, err error) {
		q := url.Values{"command": command, "output": {"1"}, "error": {"1"}}
		var in io.Reader
		if stdin != "" {
			q.Set("input", "1")
			in = strings.NewReader(stdin)
		}
		u, err := url.Parse(n.url("/exec/default/web-node/sidekick?" + q.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		e, err := n.executor(u)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), patience)
		defer stop()
		var out, errOut bytes.Buffer
		err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &errOut})
		return out.String(), errOut.String(), err
	}
	if out, errOut, err := run("", "sh", "-c", "echo hello; echo trouble >&2"); err != nil || out != "hello\n" || errOut != "trouble\n" {
		t.Errorf("both streams: %q, %q, %v", out, errOut, err)
	}
	_, _, err := run("", "sh", "-c", "exit 42")
	if exit, ok := errors.AsType[clientexec.CodeExitError](err); !ok || exit.Code != 42 {
		t.Errorf("exit code 42 came as %v", err)
	}
	text := strings.Repeat("what goes in comes out\n", 20_000)
	// By its length: the end of stdin is no message of the older WebSocket protocol.
	if out, _, err := run(text, "head", "-c", strconv.Itoa(len(text))); err != nil || out != text {
		t.Errorf("of %d bytes in %d came out, %v", len(text), len(out), err)
	}
	if _, _, err := run("", "/no/such/command"); err == nil {
		t.Error("a command that is not there was no error")
	}
}

// TestUnauthorized asks without the token, and with a wrong one.
func (n *node) TestUnauthorized(t *testing.T) {
	for _, path := range []string{
		"/pods", "/runningpods/", "/metrics", "/metrics/probes", "/metrics/cadvisor", "/debug/pods", "/healthz", "/healthz/pleg", "/containerLogs/default/web-node/web",
		"/exec/default/web-node/web?command=sh&output=1", "/nothing",
	} {
		for _, token := range []string{"", "wrong", n.token(t) + "x"} {
			if a := n.open(t.Context(), t, token, path); a.code != http.StatusUnauthorized {
				t.Errorf("%s with token %q answers %s", path, token, a.status)
			}
		}
	}
	info, err := os.Stat(filepath.Join(n.Root, "admin.token"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
	if strings.Contains(n.Log(), n.token(t)) {
		t.Error("the token stands in the log")
	}
}

// TestAnswers are what the API says besides.
func (n *node) TestAnswers(t *testing.T) {
	var list v1.PodList
	if err := json.Unmarshal([]byte(n.get(t, "/runningpods/")), &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, p := range list.Items {
		found[p.Name] = len(p.Spec.Containers)
	}
	if found["web-node"] != 2 || found["init-node"] != 1 {
		t.Errorf("/runningpods/ has containers %v", found)
	}

	metrics := n.get(t, "/metrics")
	for _, name := range []string{
		"kubelet_started_pods_total", "kubelet_started_containers_total", "kubelet_runtime_operations_total",
		"kubelet_runtime_operations_duration_seconds", "kubelet_run_podsandbox_duration_seconds",
		"kubelet_pleg_relist_duration_seconds", "kubelet_pod_worker_duration_seconds", "kubelet_running_pods",
		"kubelet_running_containers", "kubelet_http_requests_total", "kubelet_pod_status_sync_duration_seconds",
	} {
		if !strings.Contains(metrics, "# TYPE "+name+" ") {
			t.Errorf("/metrics has no %s", name)
		}
	}
	if !regexp.MustCompile(`(?m)^kubelet_started_pods_total [4-9]`).MatchString(metrics) {
		t.Error("/metrics does not count the four pods")
	}
	if probes := n.get(t, "/metrics/probes"); strings.Contains(probes, "kubelet_") || strings.Contains(metrics, "prober_") {
		t.Errorf("metrics of probes do not stand apart: %s", probes)
	}
	const ofWeb = `(?m)^container_memory_working_set_bytes\{container="web",id="/.*[0-9a-f]{64}",image=".+",name="[0-9a-f]{64}",namespace="default",pod="web-node"\} [1-9]`
	if containers := n.get(t, "/metrics/cadvisor"); !regexp.MustCompile(ofWeb).MatchString(containers) {
		t.Errorf("/metrics/cadvisor has nothing of a container: %s", containers)
	}

	var lines []struct {
		Name      string
		LastEvent *struct{ Reason string }
		Timeline  []struct {
			Step, Reason string
			Event        bool
		}
	}
	if err := json.Unmarshal([]byte(n.get(t, "/debug/pods?format=json")), &lines); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		var events, steps []string
		for _, e := range l.Timeline {
			if e.Event {
				events = append(events, e.Reason)
			} else {
				steps = append(steps, e.Step)
			}
		}
		if l.LastEvent == nil || !slices.Contains(events, "Started") || !slices.Contains(steps, "run sandbox") || !slices.Contains(steps, "start container") {
			t.Errorf("the timeline of %s has events %v and steps %v", l.Name, events, steps)
		}
	}
	if len(lines) != 4 {
		t.Errorf("there are timelines of %d pods", len(lines))
	}
	if text := n.get(t, "/debug/pods"); !strings.Contains(text, "default/web-node") {
		t.Errorf("/debug/pods as text: %s", text)
	}
}

// TestPodsTable runs the client that people use.
func (n *node) TestPodsTable(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), agent.Program(t), "pods", "--root-dir="+n.Root, fmt.Sprintf("--port=%d", n.Port())).CombinedOutput()
	if err != nil {
		t.Fatalf("nodeagent pods: %v\n%s", err, out)
	}
	t.Logf("nodeagent pods:\n%s", out)
	for _, pattern := range []string{
		`^NAMESPACE\s+NAME\s+READY\s+STATUS\s+RESTARTS\s+AGE\s+IP\s+LAST EVENT`,
		`^default\s+crashloop-node\s+[01]/1\s+(Running|CrashLoopBackOff|Error)\s+\d`,
		`^default\s+init-node\s+1/1\s+Running\s+0\s+\S+\s+10\.`,
		`^default\s+job-node\s+0/1\s+Completed\s+0\s`,
		`^default\s+web-node\s+2/2\s+Running\s+0\s+\S+\s+10\.`,
	} {
		if !regexp.MustCompile("(?m)" + pattern).Match(out) {
			t.Errorf("no line is like %s", pattern)
		}
	}
}

// check runs the look at the machine before the start.
func check(t *testing.T, n *node) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), agent.Program(t), "check", "--container-runtime-endpoint="+n.bed.Endpoint(),
		"--pod-manifest-path="+n.Manifests, "--root-dir="+n.Root, "--pod-logs-dir="+n.Logs, fmt.Sprintf("--port=%d", n.Port())).CombinedOutput()
	t.Logf("nodeagent check:\n%s", out)
	if err != nil {
		t.Errorf("nodeagent check: %v", err)
	}
}
