package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
	"github.com/kubeletkit/kubeletkit/test/agent"
)

// plant is something wrong that the driver must find.
type plant struct {
	runtime  grpc.UnaryServerInterceptor // what the runtime does in the agent's name that a good agent would not have it do
	world    func(*imagined) world       // what the agent does not hear, or says though it is not so
	patience time.Duration
	want     string // the driver's words; empty: it finds nothing
}

// Whatever is planted is found, and nothing is found where nothing is planted. The agent is the true one, killed and stopped
// as always; its runtime is in memory.
func TestPlantedFaultsAreFound(t *testing.T) {
	for name, p := range map[string]plant{
		"nothing":                               {patience: patience},
		"a twin":                                {runtime: twin(), want: "two instances of container app"},
		"a count of restarts that falls":        {runtime: countDown(), want: "restart count"},
		"a pod that is lost":                    {world: deaf, want: "is not known"},
		"a status that is not so":               {world: liar, want: "is told to be"},
		"a sandbox that stays":                  {runtime: keepSandboxes, want: "is left"},
		"a container that nobody should touch":  {runtime: touch(), want: "containers that nobody touched do not run any more"},
		"a count of restarts that is told less": {world: forgetful, want: "were told to be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := imagine(t, p.runtime)
			n.Start()
			var w world = n
			if p.world != nil {
				w = p.world(n)
			}
			all := ""
			for seed := range uint64(5) { // on a busy machine less happens in one plan
				d := &driver{world: w, patience: max(p.patience, 8*time.Second), log: t.Logf}
				d.kinds = []kind{kindNamed("plain"), kindNamed("crash"), kindNamed("pair"), kindNamed("done"), kindNamed("never")}
				d.steady = []kind{kindNamed("plain"), kindNamed("sidecar")}
				all += strings.Join(d.run(t.Context(), plan(3+seed, 8*time.Second, d.kinds, n.Faults())), "\n")
				if strings.Contains(all, p.want) {
					break
				}
			}
			switch {
			case p.want == "" && all != "":
				t.Errorf("found %s", all)
			case !strings.Contains(all, p.want):
				t.Errorf("found %q, not %q", all, p.want)
			}
		})
	}
}

// imagined is a node whose runtime is in memory.
type imagined struct {
	*node

	t         *testing.T
	socket    string
	engine    *runtimetest.Engine
	intercept grpc.UnaryServerInterceptor
	server    *grpc.Server
}

func imagine(t *testing.T, intercept grpc.UnaryServerInterceptor) *imagined {
	t.Helper()
	dir, err := os.MkdirTemp("", "chaos-") //nolint:usetesting // the test's own has too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	w := &imagined{t: t, socket: filepath.Join(dir, "cri.sock"), intercept: intercept, engine: runtimetest.New(
		runtime.Image{ID: "sha256:1", Size: 1 << 20, Tags: []string{"kubeletkit.dev/demo:1"}},
		runtime.Image{ID: "sha256:2", Size: 1 << 20, Tags: []string{"registry.k8s.io/e2e-test-images/busybox:1.37.0-2"}},
	)}
	w.engine.Behave = behave
	t.Cleanup(func() { w.server.Stop(); os.RemoveAll(dir) })
	if err := w.serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.node = &node{agent.New(t, "unix://"+w.socket), eyes{cri: dial(t, "unix://"+w.socket)}, nil}
	return w
}

// behave does what the demo program and the shell do that the kinds of pods have.
func behave(c *runtime.ContainerConfig) runtimetest.Behavior {
	words := slices.Concat(c.Command, c.Args)
	b := runtimetest.Behavior{StopAfter: 200 * time.Millisecond}
	switch text := strings.Join(words, " "); words[0] {
	case "job":
		b.Exits, b.After = true, time.Second
	case "crash":
		b.Exits, b.After, b.Code = true, 300*time.Millisecond, 1
	case "true":
		b.Exits = true
	case "wait", "sh":
	default:
		panic("what does " + text + " do?")
	}
	return b
}

func (w *imagined) serve(context.Context) error {
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		return err
	}
	var options []grpc.ServerOption
	if w.intercept != nil {
		options = append(options, grpc.UnaryInterceptor(w.intercept))
	}
	s := criserver.New(w.engine, options...)
	w.server = s
	go func() { _ = s.Serve(l) }() // ended by Stop
	return nil
}

func (w *imagined) Faults() []fault {
	start := func(context.Context) error { w.Start(); return nil }
	return []fault{
		{"the agent is killed", "agent", func(context.Context) error { w.Kill(); return nil }, start},
		{"the runtime is stopped", "runtime", func(context.Context) error { w.server.Stop(); return nil }, w.serve},
	}
}

func (w *imagined) Want(o op) { (&alone{node: w.node, t: w.t}).Want(o) }

func (w *imagined) Told(ctx context.Context) (map[string]*v1.Pod, error) { return w.told(ctx) }

func (w *imagined) View(ctx context.Context) (view, error) { return w.view(ctx) }

func (w *imagined) Left(ctx context.Context, wanted map[string]bool) error {
	return w.only(ctx, wanted)
}

func (w *imagined) Mending(ok func() error) func() error { return ok }

// twin has a second instance of a container made and started beside each.
func twin() grpc.UnaryServerInterceptor {
	var made sync.Map
	return func(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		a, err := handle(ctx, q)
		s, isRuntime := info.Server.(cri.RuntimeServiceServer)
		if err != nil || !isRuntime {
			return a, err
		}
		switch q := q.(type) {
		case *cri.CreateContainerRequest:
			made.Store(a.(*cri.CreateContainerResponse).GetContainerId(), q)
		case *cri.StartContainerRequest:
			first, known := made.LoadAndDelete(q.GetContainerId())
			if !known || first.(*cri.CreateContainerRequest).GetConfig().GetMetadata().GetName() != "app" {
				break
			}
			again := proto.CloneOf(first.(*cri.CreateContainerRequest))
			again.Config.Metadata.Attempt++
			second, err := s.CreateContainer(ctx, again)
			if err == nil {
				_, err = s.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: second.GetContainerId()})
			}
			return a, err
		}
		return a, err
	}
}

// countDown gives each container of a name a lower number than the one before it.
func countDown() grpc.UnaryServerInterceptor {
	var made sync.Map
	return func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if q, is := q.(*cri.CreateContainerRequest); is {
			m := q.GetConfig().GetMetadata()
			count, _ := made.LoadOrStore(q.GetSandboxConfig().GetMetadata().GetUid()+m.GetName(), new(atomic.Uint32))
			m.Attempt = 50 - count.(*atomic.Uint32).Add(1)
		}
		return handle(ctx, q)
	}
}

// keepSandboxes only says that they are removed.
func keepSandboxes(ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if _, is := q.(*cri.RemovePodSandboxRequest); is {
		return &cri.RemovePodSandboxResponse{}, nil
	}
	return handle(ctx, q)
}

// touch ends a container of a pod that nobody touches, whose pods have four, when the first of another is started.
func touch() grpc.UnaryServerInterceptor {
	var started atomic.Int32
	var victim atomic.Value
	return func(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		a, err := handle(ctx, q)
		q2, is := q.(*cri.StartContainerRequest)
		if !is || err != nil {
			return a, err
		}
		switch started.Add(1) {
		case 1:
			victim.Store(q2.GetContainerId())
		case 5:
			_, err = info.Server.(cri.RuntimeServiceServer).StopContainer(ctx, &cri.StopContainerRequest{ContainerId: victim.Load().(string)})
		}
		return a, err
	}
}

// deaf is an agent that does not hear of some pods.
func deaf(w *imagined) world { return deafWorld{w} }

type deafWorld struct{ *imagined }

func (w deafWorld) Want(o op) {
	if o.slot < slots && o.slot%2 == 0 {
		return
	}
	w.imagined.Want(o)
}

// liar says of all containers but the steady ones of one pod that they are being created.
func liar(w *imagined) world { return liarWorld{w, new(atomic.Bool)} }

type liarWorld struct {
	*imagined

	begun *atomic.Bool
}

func (w liarWorld) Want(o op) {
	w.begun.Store(o.slot < slots || w.begun.Load())
	w.imagined.Want(o)
}

func (w liarWorld) Told(ctx context.Context) (map[string]*v1.Pod, error) {
	told, err := w.imagined.Told(ctx)
	if p := told[fmt.Sprint("churn-", slots)]; p != nil && w.begun.Load() {
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		}
	}
	return told, err
}

// forgetful tells every other time of a restart that never was. So the count falls again, however little was restarted.
func forgetful(w *imagined) world { return &forgetfulWorld{imagined: w} }

type forgetfulWorld struct {
	*imagined

	times atomic.Int32
}

func (w *forgetfulWorld) Told(ctx context.Context) (map[string]*v1.Pod, error) {
	told, err := w.imagined.Told(ctx)
	if w.times.Add(1)%2 == 0 {
		for _, p := range told {
			for i := range p.Status.ContainerStatuses {
				p.Status.ContainerStatuses[i].RestartCount++
			}
		}
	}
	return told, err
}
