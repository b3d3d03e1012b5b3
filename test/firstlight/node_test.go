package firstlight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/images"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// patience is how long anything may take that takes a second on an idle machine.
const patience = time.Minute

// node is an agent on a containerd, and those who look at both.
type node struct {
	*agent.Agent

	bed  *bed.Bed
	cri  cri.RuntimeServiceClient
	seen *witness
}

// newNode makes an agent on a bed. It does not start it.
func newNode(tb testing.TB, b *bed.Bed, flags ...string) *node {
	tb.Helper()
	c := dial(tb, b.Endpoint())
	n := &node{Agent: agent.New(tb, b.Endpoint(), flags...), bed: b, cri: c, seen: watchRuntime(tb, c)}
	tb.Cleanup(func() {
		for _, trouble := range []string{"DATA RACE", "panic: ", "fatal error: "} { // races only with GOFLAGS=-race
			if lines := n.logged(trouble); len(lines) > 0 {
				tb.Errorf("the agent's log has %q", lines[0])
			}
		}
	})
	return n
}

// stop asks the agent to end, which must go well and be quick.
func (n *node) stop(tb testing.TB) {
	tb.Helper()
	if code, took := n.Stop(); code != 0 || took > 15*time.Second {
		tb.Errorf("the agent ended with %d after %v", code, took)
	}
}

// private is a bed for one test. It asks no registry for images: what is not there cannot be pulled.
func private(tb testing.TB) *bed.Bed {
	tb.Helper()
	b := bed.Private(tb)
	hosts := "server = \"http://127.0.0.1:9\"\n\n[host.\"http://127.0.0.1:9\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
	write(tb, filepath.Join(b.Dir(), "registry", "_default", "hosts.toml"), hosts)
	return b
}

// runs waits until a pod is as wanted, and returns it.
func (n *node) runs(tb testing.TB, namespace, name, what string, limit time.Duration, ok func(*v1.Pod) error) *v1.Pod {
	tb.Helper()
	var pod *v1.Pod
	took := agent.Eventually(tb, limit, namespace+"/"+name+": "+what, func() (err error) {
		if pod, err = n.Pod(tb.Context(), namespace, name); err != nil {
			return err
		}
		if err = ok(pod); err != nil {
			return fmt.Errorf("%w; its status is %s", err, brief(pod))
		}
		return nil
	})
	tb.Logf("%s: %s after %v", name, what, took.Round(time.Millisecond))
	return pod
}

// ready says that a pod runs and is ready.
func ready(p *v1.Pod) error {
	if p.Status.Phase != v1.PodRunning || !agent.PodReady(p) {
		return fmt.Errorf("is %s, ready %v", p.Status.Phase, agent.PodReady(p))
	}
	return nil
}

// phase says that a pod has come to a phase.
func phase(want v1.PodPhase) func(*v1.Pod) error {
	return func(p *v1.Pod) error {
		if p.Status.Phase != want {
			return fmt.Errorf("is %s, want %s", p.Status.Phase, want)
		}
		return nil
	}
}

// brief is a status in a line.
func brief(p *v1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		fmt.Fprintf(&b, "; %s restarts=%d ready=%v %s", s.Name, s.RestartCount, s.Ready, stateOf(&s.State))
	}
	return b.String()
}

func stateOf(s *v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Waiting != nil:
		return "waiting: " + s.Waiting.Reason + " " + s.Waiting.Message
	case s.Terminated != nil:
		return fmt.Sprintf("terminated: %s %d", s.Terminated.Reason, s.Terminated.ExitCode)
	default:
		return "in no state"
	}
}

// gone waits until nothing is left of a pod: no sandbox, no container, no directory, no log, no link, and no word of it
// in /pods. It returns how long that took.
func (n *node) gone(tb testing.TB, pod *v1.Pod, limit time.Duration) time.Duration {
	tb.Helper()
	took := agent.Eventually(tb, limit, "no trace is left of "+pod.Name, func() error {
		if found := n.traces(tb, pod); len(found) > 0 {
			return fmt.Errorf("found %s", strings.Join(found, ", "))
		}
		return nil
	})
	return took
}

// traces are what a pod has left on its node.
func (n *node) traces(tb testing.TB, pod *v1.Pod) (found []string) {
	tb.Helper()
	for _, s := range sandboxes(tb, n.cri, pod.Name) {
		if s.GetMetadata().GetUid() == string(pod.UID) {
			found = append(found, "sandbox "+s.GetId())
		}
	}
	for _, c := range containers(tb, n.cri, pod.Name) {
		if c.GetLabels()[labelUID] == string(pod.UID) {
			found = append(found, "container "+c.GetId())
		}
	}
	for _, pattern := range []string{
		filepath.Join(n.Logs, "*"+string(pod.UID)+"*"),
		filepath.Join(n.Root, "pods", string(pod.UID)),
	} {
		files, _ := filepath.Glob(pattern) // the pattern is good
		found = append(found, files...)
	}
	for _, dir := range cgroups.Pods(n.Cgroup) {
		if strings.HasSuffix(dir, "/pod"+string(pod.UID)) {
			found = append(found, dir)
		}
	}
	links, _ := filepath.Glob(filepath.Join(n.Links, "*")) // the same
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.Contains(to, string(pod.UID)) {
			found = append(found, l)
		}
	}
	pods, err := n.Pods(tb.Context())
	if err != nil {
		return append(found, err.Error())
	}
	for _, p := range pods {
		if p.UID == pod.UID {
			found = append(found, "/pods: "+brief(&p))
		}
	}
	return found
}

// put writes a manifest under a hidden name and renames it into place.
func (n *node) put(tb testing.TB, name, text string) {
	tb.Helper()
	replace(tb, filepath.Join(n.Manifests, name), text)
}

// take removes a manifest.
func (n *node) take(tb testing.TB, name string) {
	tb.Helper()
	if err := os.Remove(filepath.Join(n.Manifests, name)); err != nil {
		tb.Fatal(err)
	}
}

// logged are the lines of the agent's log that have all these words.
func (n *node) logged(words ...string) (lines []string) {
	for line := range strings.Lines(n.Log()) {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// says waits until the agent's log has a line with all these words.
func (n *node) says(tb testing.TB, words ...string) string {
	tb.Helper()
	agent.Eventually(tb, patience, "the agent's log has "+strings.Join(words, ", "), func() error {
		if len(n.logged(words...)) == 0 {
			return fmt.Errorf("it has no such line")
		}
		return nil
	})
	return n.logged(words...)[0]
}

// rss is the memory of the agent's process in bytes.
func (n *node) rss(tb testing.TB) int64 { tb.Helper(); return n.memory(tb, "VmRSS:") }

// peak is the most memory the agent's process has ever had.
func (n *node) peak(tb testing.TB) int64 { tb.Helper(); return n.memory(tb, "VmHWM:") }

func (n *node) memory(tb testing.TB, which string) int64 {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == which {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kib << 10
		}
	}
	tb.Fatal("the kernel does not say ", which)
	return 0
}

// cpu is the processor time the agent has used.
func (n *node) cpu(tb testing.TB) time.Duration {
	tb.Helper()
	cpu, _, err := process.Usage(n.PID())
	if err != nil {
		tb.Fatal(err)
	}
	return cpu
}

// answer is what the agent's API says.
type answer struct {
	code   int
	status string
	body   io.Reader // while it still comes
}

// open sends a request and hands out the answer while it still comes, as long as ctx lives.
func (n *node) open(ctx context.Context, tb testing.TB, token, path string) answer {
	tb.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url(path), http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = resp.Body.Close() })
	return answer{resp.StatusCode, resp.Status, resp.Body}
}

func (n *node) url(path string) string { return fmt.Sprintf("https://127.0.0.1:%d%s", n.Port(), path) }

func (n *node) token(tb testing.TB) string {
	tb.Helper()
	token, err := os.ReadFile(filepath.Join(n.Root, "admin.token"))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// get asks for a path and wants an answer.
func (n *node) get(tb testing.TB, path string) string {
	tb.Helper()
	a := n.open(tb.Context(), tb, n.token(tb), path)
	body, err := io.ReadAll(a.body)
	if err != nil || a.code != http.StatusOK {
		tb.Fatalf("%s answers %s, %v: %s", path, a.status, err, body)
	}
	return string(body)
}

// TestCrictl runs it against the node's containerd, and wants it to succeed.
func (n *node) crictl(tb testing.TB, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), filepath.Join(bed.BinDir(), "crictl"), args...)
	cmd.Env = append(os.Environ(), n.bed.Env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("crictl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func read(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// replace puts text at path in one moment.
func replace(tb testing.TB, path, text string) {
	tb.Helper()
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	write(tb, hidden, text)
	rename(tb, hidden, path)
}

func rename(tb testing.TB, from, to string) {
	tb.Helper()
	if err := os.Rename(from, to); err != nil {
		tb.Fatal(err)
	}
}

// shell is a pod with one container, in which a shell runs a script.
type shell struct {
	name    string
	script  string // empty: one that ends at once when it is asked to
	version string // an environment variable, to make another version of the pod
	grace   int    // seconds
}

const (
	// polite ends at once when it is asked to.
	polite = `trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 1 & wait $!; done`
	// slow takes three seconds to end.
	slow = `trap 'echo asked; sleep 3; echo bye; exit 0' TERM; echo up; while :; do sleep 1 & wait $!; done`
	// deaf does not end when it is asked to.
	deaf = `trap '' TERM; echo up; while :; do sleep 1; done`
)

func (s shell) String() string {
	script := s.script
	if script == "" {
		script = polite
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  terminationGracePeriodSeconds: %d
  containers:
  - name: main
    image: %s
    command: [sh, -c, %q]
    env: [{name: VERSION, value: %q}]
`, s.name, s.grace, images.Busybox, script, s.version)
}

// on is the name of the pod on this node.
func (s shell) on() string { return s.name + "-" + agent.Node }

// version is the value a pod's container has for its version.
func version(p *v1.Pod) string {
	for _, e := range p.Spec.Containers[0].Env {
		if e.Name == "VERSION" {
			return e.Value
		}
	}
	return ""
}

// up waits until a pod is ready in its version and its script has come as far as to say so: before that it takes no
// signal.
func (n *node) up(tb testing.TB, s shell, limit time.Duration) *v1.Pod {
	tb.Helper()
	return n.runs(tb, "default", s.on(), strings.TrimSpace("is up "+s.version), limit, func(p *v1.Pod) error {
		if v := version(p); v != s.version {
			return fmt.Errorf("is version %q, want %q", v, s.version)
		}
		if err := ready(p); err != nil {
			return err
		}
		pattern := filepath.Join(n.Logs, fmt.Sprintf("default_%s_%s", p.Name, p.UID), "main", "*.log")
		logs, _ := filepath.Glob(pattern) // the pattern is good
		for _, l := range logs {
			if text, err := os.ReadFile(l); err == nil && strings.Contains(string(text), " F up\n") {
				return nil
			}
		}
		return errors.New("its script is not as far")
	})
}
