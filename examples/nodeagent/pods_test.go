package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/server"
)

func waiting(name, reason string, restarts int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, RestartCount: restarts, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
}

func runs(name string, ready bool) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Ready: ready, Started: new(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func ended(name string, code int32, reason string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}}
}

func TestSummarizeFollowsKubectl(t *testing.T) {
	sidecar := v1.Container{Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}
	two := []v1.Container{{Name: "a"}, {Name: "b"}}
	ready := []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.PodInitialized, Status: v1.ConditionTrue}}
	signal := ended("a", 137, "")
	signal.State.Terminated.Signal = 9
	for _, tt := range []struct {
		name   string
		spec   v1.PodSpec
		status v1.PodStatus
		gone   bool
		ready  string
		reason string
	}{
		{"nothing is known yet", v1.PodSpec{Containers: two}, v1.PodStatus{}, false, "0/2", "Pending"},
		{"a reason stands before the phase", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}, false, "0/2", "Evicted"},
		{"all run", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{runs("a", true), runs("b", true)}, Conditions: ready}, false, "2/2", "Running"},
		{"one is not ready", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{runs("a", true), runs("b", false)}}, false, "1/2", "Running"},
		{"one crashes", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{waiting("a", "CrashLoopBackOff", 3), runs("b", true)}}, false, "1/2", "CrashLoopBackOff"},
		{"an image is missing", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{waiting("a", "ErrImagePull", 0), waiting("b", "ContainerCreating", 0)}}, false, "0/2", "ErrImagePull"},
		{"a job is done", v1.PodSpec{Containers: two[:1]}, v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{ended("a", 0, "Completed")}}, false, "0/1", "Completed"},
		{"a job failed without a reason", v1.PodSpec{Containers: two[:1]}, v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{ended("a", 3, "")}}, false, "0/1", "ExitCode:3"},
		{"a signal ended it", v1.PodSpec{Containers: two[:1]}, v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{signal}}, false, "0/1", "Signal:9"},
		{"one is done and one runs", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0, "Completed"), runs("b", true)}, Conditions: ready}, false, "1/2", "Running"},
		{"one is done and one runs, not ready as a whole", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0, "Completed"), runs("b", true)}}, false, "1/2", "NotReady"},
		{"one is done and one failed", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0, "Completed"), ended("b", 1, "Error")}}, false, "0/2", "Error"},
		{"the first init container runs", v1.PodSpec{InitContainers: two, Containers: two[:1]}, v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{runs("a", false), waiting("b", "PodInitializing", 0)}}, false, "0/1", "Init:0/2"},
		{"the second init container waits", v1.PodSpec{InitContainers: two, Containers: two[:1]}, v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{ended("a", 0, "Completed"), waiting("b", "PodInitializing", 0)}}, false, "0/1", "Init:1/2"},
		{"an init container crashes", v1.PodSpec{InitContainers: two, Containers: two[:1]}, v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{waiting("a", "CrashLoopBackOff", 2)}}, false, "0/1", "Init:CrashLoopBackOff"},
		{"an init container failed", v1.PodSpec{InitContainers: two, Containers: two[:1]}, v1.PodStatus{Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{ended("a", 1, "Error")}}, false, "0/1", "Init:Error"},
		{"a sidecar counts", v1.PodSpec{InitContainers: []v1.Container{sidecar}, Containers: two[:1]}, v1.PodStatus{Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{runs("proxy", true)}, ContainerStatuses: []v1.ContainerStatus{runs("a", true)}, Conditions: ready}, false, "2/2", "Running"},
		{"it is being ended", v1.PodSpec{Containers: two}, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{runs("a", true)}}, true, "1/2", "Terminating"},
		{"it has ended before it goes", v1.PodSpec{Containers: two[:1]}, v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{ended("a", 0, "Completed")}}, true, "0/1", "Completed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: tt.spec, Status: tt.status}
			if tt.gone {
				pod.DeletionTimestamp = new(metav1.Now())
			}
			if got := rowOf(pod, nil); got.ready != tt.ready || got.status != tt.reason {
				t.Errorf("got %s %s, want %s %s", got.ready, got.status, tt.ready, tt.reason)
			}
		})
	}
}

func TestRestartsAreCounted(t *testing.T) {
	then := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	crashed := func(name string, restarts int32, at time.Time) v1.ContainerStatus {
		c := runs(name, true)
		c.RestartCount = restarts
		c.LastTerminationState.Terminated = &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}
		return c
	}
	pod := &v1.Pod{
		Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "init"}, {Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}, Containers: []v1.Container{{Name: "a"}, {Name: "b"}}},
		Status: v1.PodStatus{
			InitContainerStatuses: []v1.ContainerStatus{crashed("init", 5, then.Add(time.Hour)), crashed("proxy", 1, then)},
			ContainerStatuses:     []v1.ContainerStatus{crashed("a", 2, then.Add(time.Minute)), crashed("b", 0, time.Time{})},
			Conditions:            []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}},
		},
	}
	pod.Status.InitContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	if r := rowOf(pod, nil); r.restarts != 3 || !r.restarted.Equal(then.Add(time.Minute)) {
		t.Errorf("got %d at %v: restarts of init containers that are done do not count", r.restarts, r.restarted)
	}
	if cells := rowOf(pod, nil).cells(then.Add(6*time.Minute), false); cells[4] != "3 (5m ago)" {
		t.Errorf("cell %q", cells[4])
	}
}

// demo are rows to show.
func demo(now time.Time) []row {
	return []row{
		{uid: "1", namespace: "default", name: "crash", ready: "0/1", status: "CrashLoopBackOff", restarts: 2, restarted: now.Add(-time.Minute), created: now.Add(-time.Hour), ip: "10.88.0.3", last: "BackOff: back-off\x1b[2J restarting"},
		{uid: "2", namespace: "default", name: "web", ready: "1/1", status: "Running", created: now.Add(-2 * time.Minute), ip: "10.88.0.2"},
	}
}

func TestTableHasColumns(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got := strings.Join(new(table).lines(demo(now), now, 0), "\n")
	want := strings.TrimPrefix(`
NAMESPACE   NAME    READY   STATUS             RESTARTS       AGE    IP          LAST EVENT
default     crash   0/1     CrashLoopBackOff   2 (60s ago)    60m    10.88.0.3   BackOff: back-off [2J restarting
default     web     1/1     Running            0              2m     10.88.0.2`, "\n")
	if strip(got) != strip(want) || strings.Contains(got, "\x1b") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// strip makes runs of spaces one.
func strip(s string) string {
	var lines []string
	for l := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(l), " "))
	}
	return strings.Join(lines, "\n")
}

func TestPicture(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var s screen
	first := s.picture(demo(now), "", now, 40, 24)
	if !strings.HasPrefix(first, "\x1b[2J\x1b[H") || !strings.HasSuffix(first, "\x1b[J") {
		t.Errorf("the first picture: %q", first)
	}
	for l := range strings.SplitSeq(strings.TrimPrefix(first, "\x1b[2J\x1b[H"), "\x1b[K\r\n") {
		if n := len([]rune(strings.TrimSuffix(l, "\x1b[J"))); n > 40 {
			t.Errorf("a line of %d: %q", n, l)
		}
	}
	if second := s.picture(demo(now)[1:], "it is away", now, 200, 24); strings.Contains(second, "\x1b[2J") || !strings.Contains(second, "\x1b[K\r\nit is away\x1b[K") {
		t.Errorf("the second picture: %q", second)
	}
	if long := s.picture(nil, strings.Repeat("x", 50), now, 40, 24); !strings.Contains(long, strings.Repeat("x", 40)+"\x1b[K\r\n"+strings.Repeat("x", 10)+"\x1b[K") {
		t.Errorf("a long note: %q", long)
	}
	if small := s.picture(demo(now), "", now, 200, 3); strings.Count(small, "\r\n") != 2 || !strings.Contains(small, "... and 2 more") {
		t.Errorf("a small terminal: %q", small)
	}
}

// watched runs watchPods over scripted looks, a second apart, and returns what it wrote.
func watched(t *testing.T, terminal bool, looks ...func(now time.Time) ([]row, error)) (out string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var b bytes.Buffer
		n := 0
		look := func(context.Context) ([]row, error) {
			if n == len(looks) {
				cancel()
				return nil, ctx.Err()
			}
			n++
			return looks[n-1](time.Now())
		}
		if err := watchPods(ctx, look, time.Second, &b, func() (int, int, bool) { return 120, 40, terminal }); err != nil {
			t.Error(err)
		}
		out = b.String()
	})
	return out
}

func TestWatchRepeatsOnlyWhatChanged(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	all := func(time.Time) ([]row, error) { return demo(start), nil }
	away := func(time.Time) ([]row, error) { return nil, errors.New("the agent does not answer") }
	changed := func(time.Time) ([]row, error) {
		rows := demo(start)
		rows[1].status = "Terminating"
		return rows, nil
	}
	less := func(time.Time) ([]row, error) { return demo(start)[:1], nil }
	out := watched(t, false, all, all, away, away, all, changed, less, less)
	var got []string
	for l := range strings.Lines(out) {
		f := strings.Fields(l)
		got = append(got, f[1]+" "+f[3])
	}
	want := "NAME STATUS,crash CrashLoopBackOff,web Running,agent not,web Terminating,web Gone"
	if strings.Join(got, ",") != want {
		t.Errorf("got %v from\n%s", got, out)
	}
}

func TestWatchKeepsThePictureWhileTheAgentIsAway(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	out := watched(t, true,
		func(time.Time) ([]row, error) { return nil, errors.New("no agent yet") },
		func(time.Time) ([]row, error) { return demo(start), nil },
		func(time.Time) ([]row, error) { return nil, errors.New("the agent does not answer") })
	pictures := strings.Split(out, "\x1b[H")[1:]
	if len(pictures) != 3 || !strings.Contains(pictures[0], "no agent yet; trying again") || strings.Contains(pictures[1], "trying") ||
		!strings.Contains(pictures[2], "CrashLoopBackOff") || !strings.Contains(pictures[2], "does not answer; trying again") {
		t.Errorf("got %q", pictures)
	}
}

type list []*v1.Pod

func (l list) Pods() []*v1.Pod { return l }

// agent serves the API as the real one does, and returns its root directory and URL.
func agent(t *testing.T, timeline server.Timeline, change ...func(*server.Config)) (root string, s *httptest.Server) {
	t.Helper()
	root = t.TempDir()
	token, err := server.WriteToken(filepath.Join(root, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := server.SelfSigned([]string{"node-1"}) // a name the client does not use
	if err != nil {
		t.Fatal(err)
	}
	if err := server.WriteCertificate(filepath.Join(root, "pki", "nodeagent.crt"), cert); err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}, Status: v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.88.0.2"}}
	cfg := server.Config{Pods: list{pod}, Access: server.AdminAccess{Token: token}, Timeline: timeline}
	for _, c := range change {
		c(&cfg)
	}
	h, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s = httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = quietLog()
	s.StartTLS()
	t.Cleanup(s.Close)
	return root, s
}

func TestPodsShowsATable(t *testing.T) {
	j := &observe.Journal{}
	j.Event(observe.Event{About: observe.Pod("default", "web", "u1"), Reason: "Started", Message: "container app started"})
	root, s := agent(t, j)
	var out strings.Builder
	if err := podsCommand(t.Context(), []string{"--root-dir", root, "--server", s.URL}, &out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "web") || !strings.Contains(got, "10.88.0.2") || !strings.Contains(got, "Started: container app started") {
		t.Errorf("got\n%s", got)
	}
}

func TestPodsDoesWithoutAJournal(t *testing.T) {
	root, s := agent(t, nil)
	var out strings.Builder
	if err := podsCommand(t.Context(), []string{"--root-dir", root, "--server", s.URL + "/"}, &out); err != nil || !strings.Contains(out.String(), "web") {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestPodsSaysWhatIsWrong(t *testing.T) {
	root, s := agent(t, nil)
	other, _ := agent(t, nil)
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = quietLog()
	stranger.StartTLS()
	defer stranger.Close()
	token := t.TempDir()
	if _, err := server.WriteToken(filepath.Join(token, "admin.token")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(token, "pki"), os.DirFS(filepath.Join(root, "pki"))); err != nil {
		t.Fatal(err)
	}
	bare := t.TempDir()
	if _, err := server.WriteToken(filepath.Join(bare, "admin.token")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, root, url, want string }{
		{"no token", t.TempDir(), s.URL, "does it run with this --root-dir"},
		{"nobody there", root, gone.URL, "does not answer: connection refused"},
		{"the certificate of another agent", other, s.URL, "its certificate is not the one in " + other},
		{"no certificate to compare with", bare, stranger.URL, "certificate"},
		{"the token of an earlier start", token, s.URL, "does not know the token"},
		{"no https", root, "http://127.0.0.1:1", "is no https URL"},
		{"no URL", root, "127.0.0.1:10250", "is no https URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := podsCommand(t.Context(), []string{"--root-dir", tt.root, "--server", tt.url}, &strings.Builder{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if err := podsCommand(t.Context(), []string{"web"}, &strings.Builder{}); err == nil {
		t.Error("an argument was taken")
	}
}

func TestClientGoesOnWhenTheAgentStartsAnew(t *testing.T) {
	root, s := agent(t, nil)
	c := &client{server: s.URL, root: root}
	defer c.close()
	if _, err := c.rows(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh, s := agent(t, nil) // with another certificate and another token
	for _, name := range []string{"admin.token", "pki/nodeagent.crt"} {
		text, err := os.ReadFile(filepath.Join(fresh, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.server = s.URL
	if rows, err := c.rows(t.Context()); err != nil || len(rows) != 1 || rows[0].uid != types.UID("u1") {
		t.Errorf("got %v, %v", rows, err)
	}
}

func TestReasonLeavesOutTheAddress(t *testing.T) {
	if got := reason(&os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}).Error(); got != "connection refused" {
		t.Errorf("got %q", got)
	}
}
