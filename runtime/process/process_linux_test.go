package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// node is a root with an engine and one pod.
type node struct {
	*testing.T
	*process.Engine
	root    string
	pod     runtime.PodRef
	sandbox string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, root: filepath.Join(t.TempDir(), "root"), pod: runtime.PodRef{Namespace: "ns", Name: "p", UID: types.UID("u")}}
	n.Engine = open(t, n.root)
	var err error
	n.sandbox, err = n.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: n.pod, LogDir: filepath.Join(t.TempDir(), "logs"), Hostname: "p"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := open(t, n.root).RemoveSandbox(context.Background(), n.sandbox); err != nil {
			t.Error(err)
		}
		if left := n.processes("ROOT=" + n.root); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	})
	return n
}

// config is a container that runs a script.
func (n *node) config(name, script string) *runtime.ContainerConfig {
	return &runtime.ContainerConfig{
		Pod: n.pod, Name: name, Image: "host", Command: []string{"sh", "-c", script}, LogPath: name + ".log",
		Env: []runtime.Env{{Name: "ROOT", Value: n.root}},
	}
}

func (n *node) start(c *runtime.ContainerConfig) string {
	n.Helper()
	id, err := n.CreateContainer(n.Context(), n.sandbox, c)
	if err == nil {
		err = n.StartContainer(n.Context(), id)
	}
	if err != nil {
		n.Fatal(err)
	}
	return id
}

func (n *node) look(id string) runtime.Container {
	n.Helper()
	c, err := n.Container(n.Context(), id)
	if err != nil {
		n.Fatal(err)
	}
	return c
}

func (n *node) exited(id string) (c runtime.Container) {
	n.Helper()
	n.until("the container has ended", func() bool {
		c = n.look(id)
		return c.State == runtime.Exited
	})
	return c
}

func (n *node) until(what string, holds func() bool) {
	n.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			n.Fatal("not within 30 s: " + what)
		}
	}
}

// processes are the living ones with that word in their environment.
func (n *node) processes(word string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, err := os.ReadFile(d + "/environ")
		if err != nil || !strings.Contains("\x00"+string(b), "\x00"+word+"\x00") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		pids = append(pids, pid)
	}
	return pids
}

// file is a file of a container's record.
func (n *node) file(id, name string) string { return filepath.Join(n.root, "containers", id, name) }

// shim is the pid of a container's shim.
func (n *node) shim(id string) int {
	n.Helper()
	var p struct{ PID int }
	b, err := os.ReadFile(n.file(id, "shim.json"))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		n.Fatal(err)
	}
	return p.PID
}

func (n *node) log(name string) string {
	b, _ := os.ReadFile(n.logFile(name))
	return string(b)
}

func (n *node) logFile(name string) string {
	cs, err := n.ListContainers(n.Context(), runtime.Filter{Pod: n.pod.UID})
	if err != nil {
		n.Fatal(err)
	}
	for _, c := range cs {
		if c.Name == name {
			return n.look(c.ID).LogPath
		}
	}
	return ""
}

func TestNextAgentKnowsTheExitCode(t *testing.T) {
	n := newNode(t)
	id := n.start(n.config("app", "sleep 0.2; exit 9"))
	n.Engine = open(t, n.root) // of the first one nothing is left but files
	if c := n.exited(id); c.ExitCode != 9 || c.Reason != "Error" {
		t.Errorf("%+v", c)
	}
}

func TestKilledShimTakesItsContainerAlong(t *testing.T) {
	n := newNode(t)
	id := n.start(n.config("app", "setsid sleep 1000 & echo ready; sleep 1000"))
	n.until("it is ready", func() bool { return strings.Contains(n.log("app"), "ready") })
	if err := syscall.Kill(n.shim(id), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c := n.exited(id)
	if c.ExitCode != 137 || c.Reason != "Error" || !strings.Contains(c.Message, "shim") || c.Started.IsZero() {
		t.Errorf("%+v", c)
	}
	if left := n.processes("KUBELETKIT_CONTAINER=" + id); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	n.Engine = open(t, n.root)
	if diff := cmp.Diff(c, n.look(id)); diff != "" {
		t.Errorf("another engine tells of another end: %s", diff)
	}
}

func TestWhatAContainerLeavesBehindIsKilled(t *testing.T) {
	n := newNode(t)
	// One in another session, one that also took off its mark.
	id := n.start(n.config("app", "setsid sleep 1001 & setsid env -i ROOT=$ROOT sleep 1002 & sleep 0.1; echo end"))
	n.exited(id)
	if left := n.processes("ROOT=" + n.root); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	if !strings.Contains(n.log("app"), " stdout F end\n") {
		t.Errorf("log %q", n.log("app"))
	}
}

func TestExecEndsWithItsContainer(t *testing.T) {
	n := newNode(t)
	id := n.start(n.config("app", "until [ -e end ]; do sleep 0.05; done"))
	r, err := n.Exec(t.Context(), id, []string{"sh", "-c", "echo begun; touch end; sleep 1000"})
	if err != nil || r.Code != 137 || string(r.Output) != "begun\n" {
		t.Errorf("%+v, %v", r, err)
	}
	n.exited(id)
}

func TestHungShimIsKilled(t *testing.T) {
	n := newNode(t)
	id := n.start(n.config("app", "sleep 1000"))
	if err := syscall.Kill(n.shim(id), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := n.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if c := n.look(id); c.State != runtime.Exited || c.ExitCode != 137 {
		t.Errorf("%+v", c)
	}
}

func TestAnotherProcessUnderAPidIsNotTheShim(t *testing.T) {
	n := newNode(t)
	id := n.start(n.config("app", "sleep 1000"))
	pid := n.shim(id)
	// The files of a container whose shim's pid belongs to somebody else now: this test.
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	other := fmt.Sprintf(`{"pid":%d,"start":1,"boot":%q}`, os.Getpid(), strings.TrimSpace(string(boot)))
	if err := os.WriteFile(n.file(id, "shim.json"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Engine = open(t, n.root)
	if err := n.StopContainer(t.Context(), id, time.Minute); err != nil {
		t.Error(err)
	}
	if c := n.look(id); c.State != runtime.Exited {
		t.Errorf("%+v", c)
	}
	n.until("its shim is gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

func TestNothingOutlivesTheBoot(t *testing.T) {
	n := newNode(t)
	id := n.start(n.config("app", "sleep 1000"))
	pid := n.shim(id)
	for _, f := range []string{n.file(id, "shim.json"), filepath.Join(n.root, "sandboxes", n.sandbox, "config.json")} {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		b = []byte(strings.Replace(string(b), strings.TrimSpace(string(boot)), "another-boot", 1))
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.Engine = open(t, n.root)
	s, err := n.Sandbox(t.Context(), n.sandbox)
	if err != nil || s.Ready || len(s.IPs) > 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if c := n.look(id); c.State != runtime.Exited {
		t.Errorf("%+v", c)
	}
	n.until("its shim is gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

func TestStartIsRefusedInAStoppedSandbox(t *testing.T) {
	n := newNode(t)
	id, err := n.CreateContainer(t.Context(), n.sandbox, n.config("app", "sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.StopSandbox(t.Context(), n.sandbox); err != nil {
		t.Fatal(err)
	}
	if err := n.StartContainer(t.Context(), id); err == nil {
		t.Error("started")
	}
}

func TestFailedStartSaysWhy(t *testing.T) {
	n := newNode(t)
	c := n.config("app", "")
	c.Command = []string{"no-such-program"}
	id, err := n.CreateContainer(t.Context(), n.sandbox, c)
	if err != nil {
		t.Fatal(err)
	}
	err = n.StartContainer(t.Context(), id)
	if err == nil || !strings.Contains(err.Error(), `"no-such-program": executable file not found in PATH`) {
		t.Error(err)
	}
	if c := n.look(id); c.State != runtime.Exited || c.ExitCode != 128 || c.Reason != "StartError" || !strings.Contains(c.Message, "no-such-program") {
		t.Errorf("%+v", c)
	}
}

func TestImages(t *testing.T) {
	n := newNode(t)
	image := t.TempDir()
	if err := os.MkdirAll(filepath.Join(image, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, "bin", "greet"), []byte("#!/bin/sh\necho hello from $PWD; cat note\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, "note"), []byte("noted\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := n.config("app", "")
	c.Image, c.Command = image, []string{"greet"}
	n.exited(n.start(c))
	if log := n.log("app"); !strings.Contains(log, "F hello from "+image+"\n") || !strings.Contains(log, "F noted\n") {
		t.Errorf("log %q", log)
	}

	for _, image := range []string{"nginx:1", "", "/no/such/directory", "/etc/passwd", "some/directory"} {
		c := n.config("bad", "true")
		c.Image = image
		_, err := n.CreateContainer(t.Context(), n.sandbox, c)
		w, ok := errors.AsType[*runtime.WaitingError](err)
		if !ok || w.Reason != "ErrImageNeverPull" || !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("image %q: %v", image, err)
		}
	}
	if _, err := n.PullImage(t.Context(), runtime.PullRequest{Image: "nginx:1"}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "nginx:1") {
		t.Error(err)
	}
}

func TestEnvironmentIsTheContainersOwn(t *testing.T) {
	t.Setenv("SECRET_OF_THE_AGENT", "x")
	n := newNode(t)
	c := n.config("app", "env | cut -d= -f1 | sort | grep -v -e '^_$' -e '^PWD$' -e '^SHLVL$' -e '^OLDPWD$'")
	c.Env = append(c.Env, runtime.Env{Name: "A", Value: "1"})
	id := n.start(c)
	n.exited(id)
	var names []string
	for l := range strings.Lines(n.log("app")) {
		names = append(names, strings.TrimSpace(strings.SplitN(l, " ", 4)[3]))
	}
	if diff := cmp.Diff([]string{"A", "HOME", "HOSTNAME", "KUBELETKIT_CONTAINER", "KUBELETKIT_MOUNTS", "PATH", "ROOT"}, names); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(n.file(id, "config.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the record with the environment: %v, %v", info.Mode(), err)
	}
}

func TestVolumesAreLinked(t *testing.T) {
	n := newNode(t)
	data, deep := t.TempDir(), t.TempDir()
	c := n.config("app", `echo one > "$KUBELETKIT_MOUNTS/data/a"; echo two > "$KUBELETKIT_MOUNTS/var/lib/deep/b"`)
	c.Mounts = []runtime.Mount{{HostPath: data, ContainerPath: "/data"}, {HostPath: deep, ContainerPath: "/var/lib/deep"}}
	if c := n.exited(n.start(c)); c.ExitCode != 0 || len(c.Mounts) != 2 {
		t.Errorf("%+v", c)
	}
	for path, want := range map[string]string{data + "/a": "one\n", deep + "/b": "two\n"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	c = n.config("nested", "true")
	c.Mounts = []runtime.Mount{{HostPath: data, ContainerPath: "/data"}, {HostPath: deep, ContainerPath: "/data/sub"}}
	if _, err := n.CreateContainer(t.Context(), n.sandbox, c); err == nil || !strings.Contains(err.Error(), "/data/sub") {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(data); len(entries) != 1 {
		t.Errorf("something was put into a volume: %v", entries)
	}
}

func TestWhatCannotBeGivenIsRefused(t *testing.T) {
	n := newNode(t)
	for name, change := range map[string]func(*runtime.ContainerConfig){
		"command":            func(c *runtime.ContainerConfig) { c.Command = nil },
		"tty":                func(c *runtime.ContainerConfig) { c.TTY = true },
		"devices":            func(c *runtime.ContainerConfig) { c.Devices = []runtime.Device{{HostPath: "/dev/null"}} },
		"is a name":          func(c *runtime.ContainerConfig) { c.Security.Username = "www" },
		"image volumes":      func(c *runtime.ContainerConfig) { c.Mounts = []runtime.Mount{{Image: "x", ContainerPath: "/x"}} },
		"no signal is named": func(c *runtime.ContainerConfig) { c.StopSignal = "SIGWHAT" },
	} {
		c := n.config("app", "true")
		change(c)
		if _, err := n.CreateContainer(t.Context(), n.sandbox, c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*runtime.SandboxConfig){
		"handler": func(c *runtime.SandboxConfig) { c.Handler = "kata" },
		"network": func(c *runtime.SandboxConfig) { c.NetNS = "/run/netns/x" },
		"sysctls": func(c *runtime.SandboxConfig) { c.Sysctls = map[string]string{"a": "b"} },
	} {
		c := &runtime.SandboxConfig{Pod: n.pod, Attempt: 1}
		change(c)
		if _, err := n.RunSandbox(t.Context(), c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUsers(t *testing.T) {
	n := newNode(t)
	c := n.config("app", "id -u; id -g; id -G; touch here && echo wrote")
	uid, gid := int64(65534), int64(65533)
	c.Security.UID, c.Security.GID, c.Security.Groups = &uid, &gid, []int64{1234}
	if os.Geteuid() != 0 {
		if _, err := n.CreateContainer(t.Context(), n.sandbox, c); err == nil || !strings.Contains(err.Error(), "user 65534") {
			t.Error(err)
		}
		return
	}
	for dir := n.root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) { // t.TempDir lets no other user in
		_ = os.Chmod(dir, 0o711)
	}
	n.exited(n.start(c))
	var said []string
	for l := range strings.Lines(n.log("app")) {
		said = append(said, strings.TrimSpace(strings.SplitN(l, " ", 4)[3]))
	}
	if diff := cmp.Diff([]string{"65534", "65533", "65533 1234", "wrote"}, said); diff != "" {
		t.Error(diff)
	}
}

func TestLogLines(t *testing.T) {
	n := newNode(t)
	n.exited(n.start(n.config("app", `head -c 40000 /dev/zero | tr "\0" x; echo; echo; printf end`)))
	type line struct {
		tag  string
		size int
	}
	var got []line
	for l := range strings.Lines(n.log("app")) {
		f := strings.SplitN(strings.TrimSuffix(l, "\n"), " ", 4)
		if _, err := time.Parse(time.RFC3339Nano, f[0]); err != nil || len(f) != 4 || f[1] != "stdout" {
			t.Fatalf("%.100q: %v", l, err)
		}
		got = append(got, line{f[2], len(f[3])})
	}
	want := []line{{"P", 16384}, {"P", 16384}, {"F", 40000 - 2*16384}, {"F", 0}, {"P", 3}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(line{})); diff != "" {
		t.Error(diff)
	}
}

func TestStateOfAnotherVersionIsLeftAlone(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "version"), []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := open(t, root)
	if _, err := e.ListSandboxes(t.Context(), runtime.Filter{}); err == nil || !strings.Contains(err.Error(), `version "2"`) {
		t.Error(err)
	}
	if info, err := e.Info(t.Context()); err != nil || info.Ready.OK || info.Ready.Message == "" {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestCutWorkIsNotSeenAndTidied(t *testing.T) {
	n := newNode(t)
	half := filepath.Join(n.root, "containers", strings.Repeat("ab", 16))
	if err := os.MkdirAll(filepath.Join(half, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	if list, err := n.ListContainers(t.Context(), runtime.Filter{}); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
	if err := n.RemoveSandbox(t.Context(), n.sandbox); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestContainersAreKilledFirstWhenMemoryEnds(t *testing.T) {
	n := newNode(t)
	c := n.config("app", "sleep 1000")
	c.Resources.OOMScoreAdj = 777
	n.start(c)
	found := false
	for _, pid := range n.processes("ROOT=" + n.root) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		found = found || err == nil && string(b) == "777\n"
	}
	if !found {
		t.Error("no process of it has the score")
	}
}

func TestStatsCountDescendants(t *testing.T) {
	n := newNode(t)
	id := n.start(n.config("app", `sh -c 'while :; do :; done' & wait`))
	n.until("it has used CPU and memory", func() bool {
		u, err := n.ContainerStats(t.Context(), runtime.Filter{})
		return err == nil && len(u) == 1 && u[0].Container == id && u[0].CPUNanos >= int64(50*time.Millisecond) && u[0].WorkingSet > 100<<10
	})
}
