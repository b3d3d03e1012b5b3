package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/asuser"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
)

// Node is the name of the node, which ends the name of every static pod.
const Node = "node"

// stopPatience is how long Stop waits before it kills.
const stopPatience = time.Minute

// An Agent is a nodeagent with directories of its own. One after the other it may have many processes.
type Agent struct {
	Manifests string // watched for pods
	Root      string // the agent's own files
	Logs      string // pod-logs-dir
	Links     string // container-logs-dir
	Cgroup    string // cgroup-root, this agent's own; empty: pods have no cgroups of their own here

	tb     testing.TB
	log    string
	port   int
	args   []string
	client *http.Client

	mu  sync.Mutex // guards now
	now *life      // nil before the first Start
}

// life is one process.
type life struct {
	cmd   *exec.Cmd
	asked bool          // Kill or Stop ended it
	ended chan struct{} // closed when it has ended and err is set
	err   error         // what Wait said
}

// New makes an agent for the runtime at a CRI endpoint. flags are added to those it needs, and win over them. It starts
// nothing but the compiler.
func New(tb testing.TB, endpoint string, flags ...string) *Agent {
	tb.Helper()
	dir := tb.TempDir()
	a := &Agent{
		Manifests: filepath.Join(dir, "manifests"), Root: filepath.Join(dir, "root"),
		Logs: filepath.Join(dir, "logs"), Links: filepath.Join(dir, "links"),
		tb: tb, log: filepath.Join(dir, "agent.log"), port: asuser.FreePort(tb),
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, // it signs itself, anew at each start
			DisableKeepAlives: true,                                                                // the next request may be for the next process
		}},
	}
	for _, d := range []string{a.Manifests, a.Root, a.Logs, a.Links} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(func() {
		a.Kill()
		if tb.Failed() {
			log := a.Log()
			tb.Logf("the end of the agent's log:\n%s", log[max(0, len(log)-16000):])
		}
	})
	a.args = append([]string{
		Program(tb),
		"--container-runtime-endpoint=" + endpoint,
		"--pod-manifest-path=" + a.Manifests, "--root-dir=" + a.Root,
		"--pod-logs-dir=" + a.Logs, "--container-logs-dir=" + a.Links,
		"--hostname-override=" + Node, "--address=127.0.0.1", "--port=" + strconv.Itoa(a.port),
		"--fail-cgroupv1=false", "--fail-swap-on=false", "--healthz-port=0",
		"--eviction-hard=memory.available<1%,nodefs.available<1%,imagefs.available<1%", "--image-gc-high-threshold=100", // whatever machine this is, and who else is on it
	}, a.grouped(endpoint)...)
	a.args = append(a.args, flags...)
	return a
}

// grouped makes a cgroup for this agent's pods alone, and removes it with all that is left in it when the test ends: agents
// that share one would end each other's pods. It returns the flags that say so.
func (a *Agent) grouped(endpoint string) []string {
	a.tb.Helper()
	above := cgroups.Of(endpoint)
	own := fmt.Sprintf("%s/%x", above, rand.Uint64())
	if err := cgroups.Make(own); err != nil {
		a.tb.Logf("pods have no cgroups of their own: %v", err)
		return []string{"--cgroups-per-qos=false", "--enforce-node-allocatable=none"}
	}
	a.Cgroup = own
	a.tb.Cleanup(func() {
		a.Kill()
		if err := cgroups.Remove(context.Background(), own); err != nil {
			a.tb.Error(err)
		}
		cgroups.Spare(above)
	})
	return []string{"--cgroup-root=" + own}
}

// Use has the next process run another program than [Program], such as one of an earlier commit.
func (a *Agent) Use(program string) { a.args[0] = program }

// Flag has the next process started with these flags, --name=value each, in place of those of the same name.
func (a *Agent) Flag(flags ...string) {
	for _, f := range flags {
		name, _, _ := strings.Cut(f, "=")
		a.args = slices.DeleteFunc(a.args, func(has string) bool { return strings.HasPrefix(has, name+"=") })
		a.args = append(a.args, f)
	}
}

// Port is where it serves HTTPS, on 127.0.0.1.
func (a *Agent) Port() int { return a.port }

// Start starts a process and returns at once.
func (a *Agent) Start() {
	a.tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now != nil && !a.now.asked {
		a.tb.Fatal("the agent was started already")
	}
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		a.tb.Fatal(err)
	}
	defer log.Close()
	l := &life{cmd: exec.Command(a.args[0], a.args[1:]...), ended: make(chan struct{})}
	l.cmd.Stdout, l.cmd.Stderr = log, log
	if err := l.cmd.Start(); err != nil {
		a.tb.Fatalf("start the agent: %v", err)
	}
	go func() {
		l.err = l.cmd.Wait()
		close(l.ended)
	}()
	a.now = l
}

// Kill ends the process with SIGKILL, if there is one, and returns when it has ended. A process that had ended by itself
// fails the test.
func (a *Agent) Kill() {
	a.tb.Helper()
	if l := a.end(syscall.SIGKILL); l != nil {
		<-l.ended
	}
}

// Stop ends the process with SIGTERM and tells its exit code and how long it took to end. A process that had ended by
// itself, or does not end, fails the test.
func (a *Agent) Stop() (code int, took time.Duration) {
	a.tb.Helper()
	start := time.Now()
	l := a.end(syscall.SIGTERM)
	if l == nil {
		a.tb.Fatal("stop: no agent runs")
	}
	select {
	case <-l.ended:
	case <-time.After(stopPatience):
		_ = l.cmd.Process.Kill()
		<-l.ended
		a.tb.Fatalf("the agent did not end within %s of SIGTERM", stopPatience)
	}
	return l.cmd.ProcessState.ExitCode(), time.Since(start)
}

// end sends a signal to the process that runs; nil: none was started since the last end.
func (a *Agent) end(sig syscall.Signal) *life {
	a.tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.now
	if l == nil || l.asked {
		return nil
	}
	l.asked = true
	if err := l.cmd.Process.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		<-l.ended
		a.tb.Errorf("the agent had ended by itself: %v", l.err)
	} else if err != nil {
		a.tb.Errorf("signal the agent: %v", err)
	}
	return l
}

// PID is the number of the process; 0: none runs.
func (a *Agent) PID() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil || a.now.asked {
		return 0
	}
	return a.now.cmd.Process.Pid
}

// gone is an error when no process runs.
func (a *Agent) gone() error {
	a.mu.Lock()
	l := a.now
	a.mu.Unlock()
	if l == nil {
		return errors.New("the agent was not started")
	}
	select {
	case <-l.ended:
		return fmt.Errorf("the agent has ended: %w", errors.Join(l.err, errors.New(l.cmd.ProcessState.String())))
	default:
		return nil
	}
}

// Log is what all processes have written so far.
func (a *Agent) Log() string {
	data, _ := os.ReadFile(a.log) // before the first start there is none
	return string(bytes.ToValidUTF8(data, []byte("?")))
}

// Write puts a manifest into the directory under a hidden name and renames it to name, over an older one.
func (a *Agent) Write(name, manifest string) {
	a.tb.Helper()
	hidden := filepath.Join(a.Manifests, "."+name)
	if err := os.WriteFile(hidden, []byte(manifest), 0o644); err != nil {
		a.tb.Fatal(err)
	}
	if err := os.Rename(hidden, filepath.Join(a.Manifests, name)); err != nil {
		a.tb.Fatal(err)
	}
}

// Remove takes a manifest away.
func (a *Agent) Remove(name string) {
	a.tb.Helper()
	if err := os.Remove(filepath.Join(a.Manifests, name)); err != nil {
		a.tb.Fatal(err)
	}
}
