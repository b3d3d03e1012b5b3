package pleg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
)

const (
	roleVariable = "KUBELETKIT_PLEG_BENCH" // server, relist or stream
	socketName   = "KUBELETKIT_PLEG_SOCKET"
	restPods     = 500
	settling     = 15 * time.Second // until the stream is taken to stand
	atRest       = time.Minute
)

// restCost is what an agent of BenchmarkAtRest took while nothing happened.
type restCost struct {
	Core float64
	MiB  float64
	Pods int // it knows
}

// BenchmarkAtRest is a node of five hundred pods, two containers each, in which nothing happens: a container runtime
// over CRI in one process, and two agents that watch it for the same minute, one by a relist each second, one by the
// runtime's event stream and a relist each minute. One operation is that minute. relist/stream is how many times the
// first costs the second.
func BenchmarkAtRest(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "cri.sock")
	server := another("server", socket)
	in, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = in.Close(), server.Wait() }()
	for b.Loop() {
		var relist, stream restCost
		var wg sync.WaitGroup
		wg.Go(func() { relist = watchNode(b, "relist", socket) })
		wg.Go(func() { stream = watchNode(b, "stream", socket) })
		wg.Wait()
		if relist.Pods != restPods || stream.Pods != restPods {
			b.Fatalf("the agents know %d and %d of %d pods", relist.Pods, stream.Pods, restPods)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(relist.Core*1000, "relist-millicores")
		b.ReportMetric(stream.Core*1000, "stream-millicores")
		b.ReportMetric(relist.Core/stream.Core, "relist/stream")
		b.ReportMetric(relist.MiB, "relist-MiB")
		b.ReportMetric(stream.MiB, "stream-MiB")
	}
}

func another(role, socket string) *exec.Cmd {
	c := exec.Command(os.Args[0]) //nolint:gosec // this test
	c.Env = append(os.Environ(), roleVariable+"="+role, socketName+"="+socket)
	c.Stderr = os.Stderr
	return c
}

func watchNode(b *testing.B, role, socket string) (c restCost) {
	b.Helper()
	out, err := another(role, socket).Output()
	if err == nil {
		err = json.Unmarshal(out, &c)
	}
	if err != nil {
		b.Errorf("%s: %v", role, err)
	}
	return c
}

// play is the life of another process.
func play(role string) int {
	do := playAgent
	if role == "server" {
		do = playServer
	}
	if err := do(role, os.Getenv(socketName)); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

// playServer is a container runtime with pods in it, until standard input ends.
func playServer(_, socket string) error {
	ctx := context.Background()
	e := newEngine()
	for i := range restPods {
		ref := runtime.PodRef{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("uid-", i))}
		if _, err := startPod(ctx, e, ref, "app", "log"); err != nil {
			return err
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := criserver.New(e)
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); s.Stop() }()
	return s.Serve(l)
}

// annotations are about as many as a container has on a node.
func annotations() map[string]string {
	return map[string]string{
		"io.kubernetes.container.hash": "6f1c9f2e", "io.kubernetes.container.restartCount": "0",
		"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
		"io.kubernetes.container.terminationMessagePolicy": "File", "io.kubernetes.pod.terminationGracePeriod": "30",
	}
}

// playAgent watches the runtime and writes what that cost to standard output.
func playAgent(role, socket string) error {
	for range 600 { // the server makes its pods first
		if _, err := os.Stat(socket); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	conn, err := cri.Dial("unix://" + socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	engine, err := cri.New(cri.Config{Runtime: conn})
	if err != nil {
		return err
	}
	pods, err := podruntime.New(podruntime.Config{Engine: engine})
	if err != nil {
		return err
	}
	var known sync.Map
	cfg := pleg.Config{Source: pods, Tell: func(e pleg.Event) { known.Store(e.Pod.UID, true) }}
	if role == "stream" {
		cfg.Notifier = engine
	}
	g, err := pleg.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), settling+atRest)
	defer stop()
	var before, after syscall.Rusage
	time.AfterFunc(settling, func() { _ = syscall.Getrusage(syscall.RUSAGE_SELF, &before) })
	if err := g.Run(ctx); err != nil {
		return err
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	c := restCost{Core: (cpu(after) - cpu(before)).Seconds() / atRest.Seconds(), MiB: float64(after.Maxrss) / 1024}
	known.Range(func(any, any) bool { c.Pods++; return true })
	return json.NewEncoder(os.Stdout).Encode(c)
}

func cpu(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }
