package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/network"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// The test binary is the shim of processes it starts.
func TestMain(m *testing.M) {
	if process.Shim() {
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// node is a Runtime over an engine in memory.
type node struct {
	*Runtime
	t      *testing.T
	engine *runtimetest.Engine
	root   string
	wakes  atomic.Int32

	mu     sync.Mutex // guards events
	events []string
}

func (n *node) Event(e observe.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e.Reason)
}

func newNode(t *testing.T, change ...func(*Config)) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir(), engine: runtimetest.New(runtime.Image{ID: "sha256:1", Tags: []string{"busybox:1"}, Size: 1})}
	n.engine.Logs = true
	images, err := image.New(image.Config{Images: n.engine, Observe: observe.To{Events: n}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Engine: n.engine, Images: images, Root: filepath.Join(n.root, "lib"), LogRoot: filepath.Join(n.root, "pods"), LogLinks: filepath.Join(n.root, "containers"),
		Changed: func(types.UID) { n.wakes.Add(1) }, Observe: observe.To{Events: n}, HostIPs: func() []string { return []string{"192.0.2.9"} },
	}
	for _, f := range change {
		f(&cfg)
	}
	if n.Runtime, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return n
}

// sync looks and steps until nothing changes any more.
func (n *node) sync(pod *v1.Pod) (runtime.Pod, runtime.SyncResult) {
	n.t.Helper()
	for range 10 {
		seen := n.look(pod)
		result, err := n.Sync(n.t.Context(), pod, runtime.SyncInput{Seen: seen})
		if err != nil {
			n.t.Fatal(err)
		}
		if !result.Acted {
			return seen, result
		}
	}
	n.t.Fatal("the pod does not come to rest")
	return runtime.Pod{}, runtime.SyncResult{}
}

func (n *node) look(pod *v1.Pod) runtime.Pod {
	n.t.Helper()
	seen, err := n.Pod(n.t.Context(), pod.UID)
	if err != nil {
		n.t.Fatal(err)
	}
	return seen
}

func pod(commands ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u-1", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "x"}}}
	p.Spec.TerminationGracePeriodSeconds = new(int64(5))
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	for i, c := range commands {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: string(rune('a' + i)), Image: "busybox:1", ImagePullPolicy: v1.PullIfNotPresent, Command: []string{"/bin/sh", "-c", c},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
		})
	}
	return p
}

// polite is a command that ends when it is asked to.
const polite = "trap 'exit 0' TERM; sleep 100"

func TestNamesAreTheKubelets(t *testing.T) {
	n := newNode(t)
	p := pod("echo hello; sleep 100")
	seen, _ := n.sync(p)
	s, c := seen.Sandboxes[0], seen.Containers[0]
	if diff := cmp.Diff(map[string]string{"app": "web", runtime.LabelPodName: "web", runtime.LabelPodNamespace: "shop", runtime.LabelPodUID: "u-1"}, s.Labels); diff != "" {
		t.Errorf("sandbox labels %s", diff)
	}
	if diff := cmp.Diff(map[string]string{"note": "x"}, s.Annotations); diff != "" {
		t.Errorf("sandbox annotations %s", diff)
	}
	want := map[string]string{
		"io.kubernetes.container.hash": plan.Hash(&p.Spec.Containers[0]), "io.kubernetes.container.restartCount": "0",
		"io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.pod.terminationGracePeriod": "5",
	}
	if diff := cmp.Diff(want, c.Annotations); diff != "" {
		t.Errorf("container annotations %s", diff)
	}
	log := filepath.Join(n.root, "pods/shop_web_u-1/a/0.log")
	if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), "hello") {
		t.Errorf("log %q %v", b, err)
	}
	link := filepath.Join(n.root, "containers", "web_shop_a-"+c.ID+".log")
	if to, err := os.Readlink(link); err != nil || to != log {
		t.Errorf("link %q %v", to, err)
	}
	hosts, err := os.ReadFile(filepath.Join(n.root, "lib/pods/u-1/etc-hosts"))
	if err != nil || !strings.Contains(string(hosts), seen.IPs[0]+"\tweb\n") {
		t.Errorf("hosts %q %v", hosts, err)
	}
	if diff := cmp.Diff([]string{"Pulled", "Created", "Started"}, n.events); diff != "" {
		t.Errorf("events %s", diff)
	}
}

func TestPurgeLeavesNoTrace(t *testing.T) {
	n := newNode(t)
	p := pod(polite, polite)
	seen, _ := n.sync(p)
	if err := n.Stop(t.Context(), p, seen, runtime.Termination{Grace: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if n.look(p).Running() {
		t.Error("something still runs")
	}
	if err := n.Remove(t.Context(), p.UID, runtime.Release); err != nil {
		t.Fatal(err)
	}
	if len(n.look(p).Containers) != 2 {
		t.Error("a released pod cannot be read any more")
	}
	for range 2 { // the second time nothing is left, and that is no error
		if err := n.Remove(t.Context(), p.UID, runtime.Purge); err != nil {
			t.Fatal(err)
		}
	}
	if seen := n.look(p); len(seen.Containers)+len(seen.Sandboxes) > 0 {
		t.Errorf("left in the engine: %+v", seen)
	}
	_ = filepath.WalkDir(n.root, func(path string, d os.DirEntry, err error) error {
		if strings.Contains(path, "u-1") || strings.Contains(path, "web_shop") {
			t.Errorf("left on disk: %s", path)
		}
		return err
	})
}

// Of a pod that begins anew under its uid people still read how it ended, and how often its containers have run.
func TestAPodThatIsRenewedKeepsItsLogs(t *testing.T) {
	n := newNode(t)
	p := pod(polite, polite)
	seen, _ := n.sync(p)
	dirs, _ := filepath.Glob(filepath.Join(n.root, "*", "*_u-1", "a"))
	if len(dirs) != 1 {
		t.Fatalf("log directories: %q", dirs)
	}
	log := filepath.Join(dirs[0], "0.log") // the engine in memory writes none
	if err := os.WriteFile(log, []byte("its last words"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context(), p, seen, runtime.Termination{Grace: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(t.Context(), p.UID, runtime.Renew); err != nil {
		t.Fatal(err)
	}
	if seen := n.look(p); len(seen.Containers)+len(seen.Sandboxes) > 0 {
		t.Errorf("left in the engine: %+v", seen)
	}
	n.sync(p)
	if c := n.look(p).Newest("a"); c == nil || c.Restarts != 1 || c.State != runtime.Running {
		t.Errorf("in its next life: %+v", c)
	}
	if _, err := os.Stat(log); err != nil {
		t.Error(err)
	}
}

func TestAFailureIsShownAndNotRepeatedAtEveryWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("sleep 100", "sleep 100")
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "k"}}}}
		_, result := n.sync(p)
		seen := n.look(p)
		if w := seen.Waiting["a"]; w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, `secret "s"`) {
			t.Errorf("%+v", w)
		}
		if c := seen.Newest("b"); c == nil || c.State != runtime.Running {
			t.Error("one container that cannot start keeps another from starting")
		}
		if got := time.Until(result.RetryAt); got != retryAfter {
			t.Errorf("tried again after %v", got)
		}
		failures := func() int {
			return len(slices.DeleteFunc(slices.Clone(n.events), func(e string) bool { return e != "Failed" }))
		}
		for range 5 {
			n.sync(p)
		}
		if failures() != 1 {
			t.Errorf("%d failures, want one", failures())
		}
		time.Sleep(retryAfter)
		n.sync(p)
		if failures() != 2 {
			t.Errorf("%d failures after the wait, want two", failures())
		}
		p = p.DeepCopy()
		p.Spec.Containers[0].Env = nil // a person mends it
		n.sync(p)
		if seen := n.look(p); len(seen.Waiting) > 0 || seen.Newest("a") == nil {
			t.Errorf("after mending %+v", seen.Waiting)
		}
	})
}

// What keeps a container from being made stays known while a sidecar before it waits to run again.
func TestAFailureStaysKnownWhileOthersHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("sleep 1; exit 1", polite, polite)
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers[:2], p.Spec.Containers[2:]
		for i := range p.Spec.InitContainers {
			p.Spec.InitContainers[i].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers[1].SecurityContext = &v1.SecurityContext{RunAsUser: new(int64(0)), RunAsNonRoot: new(true)}
		seen := map[string]bool{}
		for range 60 {
			n.sync(p)
			w := n.look(p).Waiting
			if seen[w["a"].Reason] = true; w["b"].Reason != "CreateContainerConfigError" {
				t.Fatalf("b waits with %+v, a with %+v", w["b"], w["a"])
			}
			time.Sleep(time.Second)
		}
		if !seen[""] || !seen["CrashLoopBackOff"] {
			t.Errorf("a waited with %v", seen)
		}
	})
}

func TestImageFailuresWaitTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("sleep 100")
		p.Spec.Containers[0].Image = "nowhere/none:1"
		var reasons []string
		start := time.Now()
		for range 4 {
			_, result := n.sync(p)
			reasons = append(reasons, n.look(p).Waiting["a"].Reason+" "+time.Since(start).String())
			time.Sleep(time.Until(result.RetryAt))
		}
		want := []string{"ErrImagePull 0s", "ErrImagePull 10s", "ImagePullBackOff 20s", "ErrImagePull 30s"}
		if diff := cmp.Diff(want, reasons); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTerminationMessage(t *testing.T) {
	n := newNode(t)
	p := pod("echo from the log; exit 3", "sleep 100")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	p.Spec.Containers[1].TerminationMessagePath = "tmp//words/"
	seen, _ := n.sync(p)
	if got := seen.Newest("a").Message; !strings.Contains(got, "from the log") {
		t.Errorf("fallback to the log: %q", got)
	}
	place := seen.Newest("b").Mounts[len(seen.Newest("b").Mounts)-1]
	if place.ContainerPath != "/tmp/words" { // engines refuse paths that begin nowhere
		t.Errorf("mounted at %q", place.ContainerPath)
	}
	file := place.HostPath
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 5000)+"the end"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := n.engine.Exit(seen.Newest("b").ID, 1); err != nil {
		t.Fatal(err)
	}
	if got := n.look(p).Newest("b").Message; len(got) != maxMessage || !strings.HasSuffix(got, "the end") {
		t.Errorf("%d bytes ending in %q", len(got), got[max(0, len(got)-10):])
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", file); err != nil {
		t.Fatal(err)
	}
	if got := n.look(p).Newest("b").Message; got != "" {
		t.Errorf("a link out of the container was followed: %q", got)
	}
}

func TestRestartCountGoesOnWhenTheRuntimeForgot(t *testing.T) {
	n := newNode(t)
	p := pod("sleep 100")
	dir := filepath.Join(n.root, "pods/shop_web_u-1/a")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"3.log", "4.log.20260101-000000.gz", "junk.log"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if seen, _ := n.sync(p); seen.Newest("a").Restarts != 5 {
		t.Errorf("restart count %d, want 5", seen.Newest("a").Restarts)
	}
}

// People may have been told of an instance that was never started, such as by an engine whose answer was lost.
func TestANumberThatWasGivenIsNotGivenAgainLower(t *testing.T) {
	n := newNode(t)
	p := pod("sleep 100")
	seen, _ := n.sync(p)
	first := seen.Newest("a")
	if err := n.engine.Exit(first.ID, 1); err != nil {
		t.Fatal(err)
	}
	seen, _ = n.sync(p)
	if second := seen.Newest("a"); second.Restarts != 1 {
		t.Fatalf("the second instance has number %d", second.Restarts)
	}
	for _, c := range seen.Containers {
		if err := n.RemoveInstance(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if seen, _ = n.sync(p); seen.Newest("a") == nil || seen.Newest("a").Restarts < 1 {
		t.Errorf("the next one is %+v", seen.Newest("a"))
	}
}

func TestNoNetworkNoSandbox(t *testing.T) {
	n := newNode(t)
	n.engine.SetInfo(runtime.Info{Network: runtime.Condition{Message: "cni is missing"}, Handlers: []runtime.Handler{{}}})
	p := pod("sleep 100")
	result, err := n.Sync(t.Context(), p, runtime.SyncInput{})
	if !errors.Is(err, runtime.ErrNetworkNotReady) || result.RetryAt.IsZero() {
		t.Errorf("%+v %v", result, err)
	}
	p.Spec.HostNetwork, p.UID = true, "u-2"
	if _, err := n.Sync(t.Context(), p, runtime.SyncInput{}); err != nil {
		t.Errorf("a pod in the host's network needs none: %v", err)
	}
}

// Field reports kubernetes/kubernetes#103110 and #120748: the file that resolvConf names is not there.
func TestNoResolverSettingsNoSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := errors.New("resolvConf: no such file")
		n := newNode(t, func(c *Config) { c.DNS = func() network.DNS { return network.DNS{Unread: unread} } })
		p := pod("sleep 100")
		result, err := n.Sync(t.Context(), p, runtime.SyncInput{})
		if !errors.Is(err, unread) || result.RetryAt.IsZero() || !slices.Contains(n.events, "FailedCreatePodSandBox") {
			t.Errorf("%+v %v %q", result, err, n.events)
		}
		unread = nil
		time.Sleep(time.Until(result.RetryAt))
		if seen, _ := n.sync(p); len(seen.Containers) != 1 {
			t.Errorf("once it is there: %+v", seen)
		}
	})
}

// texts has the message of the newest event of each reason.
type texts struct{ sync.Map }

func (t *texts) Event(e observe.Event) { t.Store(e.Reason, e.Message) }

func TestAMissingDNSIsToldInTheKubeletsWords(t *testing.T) {
	var told texts
	n := newNode(t, func(c *Config) {
		c.Observe.Events = &told
		c.DNS = func() network.DNS { return network.DNS{Domain: "cluster.local"} }
	})
	p := pod("sleep 100")
	n.sync(p)
	want := fmt.Sprintf(`pod: "%s_%s(%s)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`, p.Name, p.Namespace, p.UID)
	if got, _ := told.Load("MissingClusterDNS"); got != want {
		t.Errorf("told %v, want %s", got, want)
	}
}

func TestSweep(t *testing.T) {
	n := newNode(t)
	p := pod("sleep 100")
	n.sync(p)
	stale := []string{filepath.Join(n.root, "pods/ns_old_u-0"), filepath.Join(n.root, "lib/pods/u-0/containers/a")}
	precious := filepath.Join(n.root, "lib/pods/u-9/volumes/data")
	for _, d := range append(stale, precious, filepath.Join(n.root, "pods/not-a-pod")) {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	for _, d := range stale {
		if _, err := os.Stat(d); err == nil {
			t.Errorf("%s is left", d)
		}
	}
	for _, d := range []string{precious, filepath.Join(n.root, "pods/not-a-pod"), filepath.Join(n.root, "pods/shop_web_u-1")} {
		if _, err := os.Stat(d); err != nil {
			t.Errorf("%s is gone", d)
		}
	}
}

func TestAUIDIsNeverAPathOut(t *testing.T) {
	n := newNode(t)
	for _, uid := range []types.UID{"", ".", "..", "../x", "a/b", "a\x00"} {
		p := pod("sleep 1")
		p.UID = uid
		if _, err := n.Sync(t.Context(), p, runtime.SyncInput{}); err == nil {
			t.Errorf("uid %q was let in", uid)
		}
		if err := n.Remove(t.Context(), uid, runtime.Purge); err == nil {
			t.Errorf("uid %q was removed", uid)
		}
	}
}

// homeless is an engine whose sandboxes get no address.
type homeless struct{ *runtimetest.Engine }

func (h homeless) Sandbox(ctx context.Context, id string) (runtime.Sandbox, error) {
	s, err := h.Engine.Sandbox(ctx, id)
	s.IPs = nil
	return s, err
}

func TestASandboxWithoutAddressIsReplacedInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(c *Config) { c.Engine = homeless{c.Engine.(*runtimetest.Engine)} })
		p := pod("sleep 100")
		var acted []bool
		for range 5 { // made, then stopped; wakes that come after that change nothing
			result, _ := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
			acted = append(acted, result.Acted)
		}
		if diff := cmp.Diff([]bool{true, true, false, false, false}, acted); diff != "" {
			t.Error(diff)
		}
		if got := n.engine.Calls("RunSandbox"); got != 1 {
			t.Errorf("%d sandboxes made at once", got)
		}
		time.Sleep(retryAfter)
		_, _ = n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
		seen := n.look(p)
		if s := seen.Sandboxes[0]; s.Attempt != 1 || len(seen.Containers) > 0 || seen.Sandboxes[1].Ready {
			t.Errorf("%+v", seen)
		}
	})
}

func TestDeedsOfInstancesThatAreNoMoreAreForgotten(t *testing.T) {
	var m memory
	if !m.once("u", preStopRun, "old") || m.once("u", preStopRun, "old") || !m.once("u", killingTold, "old") || !m.once("u", preStopRun, "new") {
		t.Error("each is done once")
	}
	m.trim(runtime.Pod{PodRef: runtime.PodRef{UID: "u"}, Containers: []runtime.Container{{ID: "new"}}})
	if n := len(m.pods["u"].done); n != 1 {
		t.Errorf("%d are remembered, want one", n)
	}
	if m.once("u", preStopRun, "new") {
		t.Error("that of an instance that is there was forgotten")
	}
}

func TestANameInUseIsAskedForOftenAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("sleep 100")
		n.engine.Inject("RunSandbox", runtimetest.Fail(fmt.Errorf("name web is reserved: %w", runtime.ErrInUse)))
		var waits []time.Duration
		for range 7 {
			result, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
			if !errors.Is(err, runtime.ErrInUse) {
				t.Fatal(err)
			}
			waits = append(waits, time.Until(result.RetryAt)/time.Second)
			time.Sleep(time.Until(result.RetryAt))
		}
		if want := []time.Duration{1, 1, 2, 4, 8, 10, 10}; !slices.Equal(waits, want) {
			t.Errorf("waits of %v seconds", waits)
		}
		n.engine.Inject("RunSandbox", nil)
		n.sync(p)
		n.sync(p)
		if got := len(n.memory.pods[p.UID].gates); got > 0 {
			t.Errorf("%d failures are remembered of what works", got)
		}
	})
}

// stingy is an engine that never gives back the first name it was asked for by one of its calls.
type stingy struct {
	runtime.Engine
	call  string
	first *uint32
	asked int
}

func (s *stingy) refuse(call string, attempt uint32) error {
	if call != s.call {
		return nil
	}
	if s.first == nil {
		s.first = &attempt
	}
	if attempt != *s.first {
		return nil
	}
	s.asked++
	return fmt.Errorf("name web_%d is reserved: %w", attempt, runtime.ErrInUse)
}

func (s *stingy) RunSandbox(ctx context.Context, c *runtime.SandboxConfig) (string, error) {
	if err := s.refuse("sandbox", c.Attempt); err != nil {
		return "", err
	}
	return s.Engine.RunSandbox(ctx, c)
}

func (s *stingy) CreateContainer(ctx context.Context, sandbox string, c *runtime.ContainerConfig) (string, error) {
	if err := s.refuse("container", c.Attempt); err != nil {
		return "", err
	}
	return s.Engine.CreateContainer(ctx, sandbox, c)
}

// Case c155 and field reports containerd/containerd#4604, kubernetes/kubernetes#97153: a call that never ended kept its name, which was
// asked for without end.
func TestANameThatIsReservedForGoodIsGivenUp(t *testing.T) {
	for _, call := range []string{"sandbox", "container"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := &stingy{call: call}
				n := newNode(t, func(c *Config) { engine.Engine, c.Engine = c.Engine, engine })
				p := pod("sleep 100000")
				begin := time.Now()
				for n.look(p).Newest("a") == nil && time.Since(begin) < time.Hour {
					result, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
					if err != nil && !errors.Is(err, runtime.ErrInUse) {
						t.Fatal(err)
					}
					time.Sleep(max(time.Until(result.RetryAt), time.Second))
				}
				if took := time.Since(begin); took < reservedFor || took > reservedFor+time.Minute || engine.asked < 20 {
					t.Errorf("it runs after %v, and the name was asked for %d times", took, engine.asked)
				}
				seen, _ := n.sync(p)
				if len(seen.Sandboxes) != 1 || len(seen.Containers) != 1 || seen.Containers[0].State != runtime.Running {
					t.Fatalf("there is %+v", seen)
				}
				// What comes next goes on from there.
				if err := n.engine.StopSandbox(t.Context(), seen.Sandboxes[0].ID); err != nil {
					t.Fatal(err)
				}
				before := seen
				if seen, _ = n.sync(p); seen.Sandboxes[0].Attempt != before.Sandboxes[0].Attempt+1 || seen.Newest("a").Restarts != before.Newest("a").Restarts+1 {
					t.Errorf("after %+v there is %+v", before, seen)
				}
			})
		})
	}
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"nothing":              {},
		"less starts than one": {Engine: runtimetest.New(), Starts: -1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
