package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func busybox() runtime.Image {
	return runtime.Image{
		ID: "sha256:b0b0", Tags: []string{"example.com/busybox:1"}, Size: 4 << 20,
		Digests: []string{"example.com/busybox@sha256:d1d1"},
	}
}

// listen serves an engine at a socket until the test ends or stop is called.
func listen(t *testing.T, socket string, e *runtimetest.Engine, options ...grpc.ServerOption) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := criserver.New(e, options...)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	stop = sync.OnceFunc(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// serve is a cri.Engine over a server over e.
func serve(t *testing.T, e *runtimetest.Engine, cfg cri.Config, options ...grpc.ServerOption) *cri.Engine {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	listen(t, socket, e, options...)
	return dial(t, "unix://"+socket, cfg)
}

func TestEngineOverASocketKeepsTheContract(t *testing.T) {
	fake := runtimetest.New(busybox())
	fake.Logs = true
	e := serve(t, fake, cri.Config{})
	runtimetest.Run(t, func() runtime.Engine { return e }, runtimetest.Able(func(runtime.Engine) runtimetest.Abilities {
		return runtimetest.Abilities{Notifier: e, LogReopener: e, Stats: e}
	}))
}

// deadlines is, by method, how long each call that a server saw had to live; zero is for ever.
type deadlines struct {
	mu   sync.Mutex
	left map[string]time.Duration
}

func (d *deadlines) see(ctx context.Context, q any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	method := i.FullMethod[strings.LastIndexByte(i.FullMethod, '/')+1:]
	d.left[method] = 0
	if at, ok := ctx.Deadline(); ok {
		d.left[method] = time.Until(at)
	}
	return next(ctx, q)
}

func TestEveryCallHasItsDeadline(t *testing.T) {
	seen := &deadlines{left: map[string]time.Duration{}}
	fake := runtimetest.New(busybox())
	e := serve(t, fake, cri.Config{Timeout: time.Hour}, grpc.UnaryInterceptor(seen.see))
	ctx := context.Background()

	conf := &runtime.SandboxConfig{Pod: runtime.PodRef{Namespace: "default", Name: "web", UID: "u1"}}
	sandbox, err := e.RunSandbox(ctx, conf)
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.CreateContainer(ctx, sandbox, &runtime.ContainerConfig{
		Pod: conf.Pod, Name: "main", Image: "sha256:b0b0", Sandbox: conf,
	})
	if err != nil {
		t.Fatal(err)
	}
	fake.Remote(busybox())
	short, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for what, err := range map[string]error{
		"start": e.StartContainer(ctx, id),
		"exec":  second(e.Exec(ctx, id, []string{"true"})),
		"pull":  second(e.PullImage(ctx, runtime.PullRequest{Image: "example.com/busybox:1"})),
		"list":  second(e.ListImages(short)),
		"stop":  e.StopContainer(ctx, id, 30*time.Minute),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for method, want := range map[string]time.Duration{
		"RunPodSandbox": 2 * time.Hour, "CreateContainer": time.Hour, "StartContainer": time.Hour,
		"StopContainer": 90 * time.Minute, "ExecSync": 0, "PullImage": 0, "ListImages": time.Minute,
	} {
		if got := seen.left[method].Round(time.Minute); got != want {
			t.Errorf("%s had %v to live, want %v", method, got, want)
		}
	}
}

func second[A any](_ A, err error) error { return err }

func TestExecTellsTheRuntimeWhenToKill(t *testing.T) {
	fake := runtimetest.New(busybox())
	e := serve(t, fake, cri.Config{})
	killed := make(chan error, 20) // one that begins late is killed, too
	var begun atomic.Bool
	fake.Behave = func(*runtime.ContainerConfig) runtimetest.Behavior {
		return runtimetest.Behavior{Exec: func(ctx context.Context, _ []string) (runtime.ExecResult, error) {
			begun.Store(true)
			<-ctx.Done()
			killed <- ctx.Err()
			return runtime.ExecResult{}, ctx.Err()
		}}
	}
	id := startOne(t, e)
	for patience := 50 * time.Millisecond; ; patience *= 2 { // until there is time enough for the command to begin
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := e.Exec(ctx, id, []string{"hang"})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Exec = %v, want the end of its time", err)
		}
		if begun.Load() {
			break
		}
	}
	if err := <-killed; err == nil {
		t.Error("the runtime's command lived on")
	}
}

// startOne runs a pod with one container and returns the container's ID.
func startOne(t *testing.T, e runtime.Engine) string {
	t.Helper()
	conf := &runtime.SandboxConfig{Pod: runtime.PodRef{Namespace: "default", Name: "web", UID: "u1"}}
	sandbox, err := e.RunSandbox(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.CreateContainer(t.Context(), sandbox, &runtime.ContainerConfig{
		Pod: conf.Pod, Name: "main", Image: "sha256:b0b0", Sandbox: conf,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestErrorsSayWhatTheyMean(t *testing.T) {
	fake := runtimetest.New()
	e := serve(t, fake, cri.Config{})
	for name, row := range map[string]struct{ fault, means error }{
		"not found":   {runtime.ErrNotFound, runtime.ErrNotFound},
		"unavailable": {runtime.ErrUnavailable, runtime.ErrUnavailable},
		"unsupported": {errors.ErrUnsupported, errors.ErrUnsupported},
		"deadline":    {context.DeadlineExceeded, context.DeadlineExceeded},
		"cancelled":   {context.Canceled, context.Canceled},
		"reserved":    {errors.New(`failed to reserve sandbox name "web_default_u_0": name "web_default_u_0" is reserved for "5f3a"`), runtime.ErrInUse},
	} {
		t.Run(name, func(t *testing.T) {
			fake.Inject("RunSandbox", runtimetest.Fail(row.fault))
			_, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: runtime.PodRef{Namespace: "default", Name: "web"}})
			if want := "run sandbox default/web: " + row.fault.Error(); !errors.Is(err, row.means) || err.Error() != want {
				t.Errorf("error %q, want one that is %v and reads %q", err, row.means, want)
			}
		})
	}
	t.Run("others keep their code and mean nothing in particular", func(t *testing.T) {
		fake.Inject("RunSandbox", runtimetest.Fail(errors.New("out of addresses")))
		_, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: runtime.PodRef{Namespace: "default", Name: "web"}})
		if s, _ := status.FromError(err); s.Code() != codes.Unknown || err.Error() != "run sandbox default/web: out of addresses" {
			t.Errorf("error %q of code %v", err, s.Code())
		}
	})
	t.Run("a sandbox cannot be given other sizes, says containerd 2.2 without a code", func(t *testing.T) {
		for says, unsupported := range map[string]bool{"not implemented yet": true, "no space left": false} {
			fake.Inject("UpdateSandbox", runtimetest.Fail(errors.New(says)))
			if err := e.UpdateSandbox(t.Context(), "s", runtime.Resources{}, runtime.Resources{}); err == nil || errors.Is(err, errors.ErrUnsupported) != unsupported {
				t.Errorf("%s: %v", says, err)
			}
		}
	})
	for name, row := range map[string]struct { // kubernetes/kubernetes#106682 and #89862
		says  string
		means error
	}{
		"no program":            {`failed to exec in container: failed to start exec "1848": OCI runtime exec failed: exec failed: unable to start container process: exec: "invalid": executable file not found in $PATH`, runtime.ErrNoCommand},
		"no program, as before": {`OCI runtime exec failed: exec failed: container_linux.go:380: starting container process caused: exec: "invalid": executable file not found in $PATH: unknown`, runtime.ErrNoCommand},
		"no program, by crun":   {"executable file `invalid` not found in $PATH: No such file or directory", runtime.ErrNoCommand},
		"no file":               {`exec failed: unable to start container process: exec: "/x": stat /x: no such file or directory`, runtime.ErrNoCommand},
		"no permission":         {`exec failed: unable to start container process: exec: "/etc/passwd": permission denied`, runtime.ErrNoCommand},
		"something around it":   {`OCI runtime exec failed: exec failed: starting container process caused: process_linux.go:90: adding pid 21603 to cgroups caused: open /sys/fs/cgroup/x/cgroup.procs: no such file or directory: unknown`, nil},
	} {
		t.Run("exec: "+name, func(t *testing.T) {
			fake.Inject("Exec", runtimetest.Fail(errors.New(row.says)))
			if _, err := e.Exec(t.Context(), "c", []string{"x"}); err == nil || errors.Is(err, runtime.ErrNoCommand) != (row.means != nil) {
				t.Errorf("error %v, want one that means %v", err, row.means)
			}
		})
	}
	t.Run("of a pull are the runtime's words alone", func(t *testing.T) {
		fake.Inject("PullImage", runtimetest.Fail(errors.New("RegistryUnavailable: pull web: connection refused")))
		_, err := e.PullImage(t.Context(), runtime.PullRequest{Image: "web"})
		if err == nil || !strings.HasPrefix(err.Error(), "RegistryUnavailable: ") {
			t.Errorf("error %q", err)
		}
	})
	t.Run("taking away what is gone is none", func(t *testing.T) {
		fake.Inject("StopSandbox", runtimetest.Fail(runtime.ErrNotFound))
		if err := e.StopSandbox(t.Context(), "nobody"); err != nil {
			t.Error(err)
		}
	})
}

func TestWhereImagesLieAndWhereContainersWrite(t *testing.T) {
	fake := runtimetest.New(busybox())
	fake.ImageDir = "/images"
	e := serve(t, fake, cri.Config{})
	for _, dir := range []string{"", "/writes"} {
		fake.WriteDir = dir
		want := []runtime.FSUsage{{Mountpoint: "/images", Used: 4 << 20}, {Mountpoint: "/writes", Written: true}}
		if dir == "" {
			want = want[:1]
		}
		if got, err := e.ImageFS(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

func TestInfoNeedsNoCgroupDriver(t *testing.T) {
	fake := runtimetest.New()
	e := serve(t, fake, cri.Config{})
	for _, driver := range []string{"", "cgroupfs", "systemd"} {
		want := runtime.Info{
			Name: "containerd", Version: "v2", CgroupDriver: driver,
			Ready: runtime.Condition{OK: true}, Network: runtime.Condition{Reason: "NetworkPluginNotReady", Message: "no network"},
			Handlers: []runtime.Handler{{}, {Name: "gvisor", UserNamespaces: true, RecursiveRO: true}}, GroupsPolicy: driver != "",
		}
		fake.SetInfo(want)
		got, err := e.Info(t.Context())
		if err != nil || got.CgroupDriver != driver || got.Network != want.Network || got.GroupsPolicy != want.GroupsPolicy || !got.Ready.OK ||
			len(got.Handlers) != 2 || got.Handlers[1] != want.Handlers[1] || got.Name != "containerd" {
			t.Errorf("Info = %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestRuntimeThatHangsHoldsNobody(t *testing.T) {
	t.Run("when it does not answer", func(t *testing.T) {
		fake := runtimetest.New()
		fake.Inject("", runtimetest.Hang)
		e := serve(t, fake, cri.Config{Timeout: 50 * time.Millisecond})
		if _, err := e.ListSandboxes(t.Context(), runtime.Filter{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("when it takes connections and says nothing", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "dead.sock")
		l, err := net.Listen("unix", socket) // nobody accepts
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		e := dial(t, "unix://"+socket, cri.Config{Timeout: 50 * time.Millisecond})
		if _, err := e.ListSandboxes(t.Context(), runtime.Filter{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.StopContainer(ctx, "c1", time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestRuntimeThatWasRestartedIsFoundAgain(t *testing.T) {
	fake := runtimetest.New(busybox())
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	e := dial(t, "unix://"+socket, cri.Config{})
	_, err := e.ListContainers(t.Context(), runtime.Filter{})
	if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), socket) {
		t.Fatalf("before it runs: %v", err)
	}

	stop := listen(t, socket, fake)
	answers(t, e)
	id := startOne(t, e)
	broken := make(chan error, 1)
	go func() { broken <- e.Events(t.Context(), func(runtime.Event) {}) }()

	stop()
	begin := time.Now()
	if _, err := e.Container(t.Context(), id); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("while it is down: %v", err)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("it took %v to say so", d)
	}
	if err := <-broken; !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("the event stream ended with %v", err)
	}

	listen(t, socket, fake)
	answers(t, e)
	if c, err := e.Container(t.Context(), id); err != nil || c.State != runtime.Running || c.SandboxID == "" {
		t.Errorf("afterwards: %+v, %v", c, err)
	}
}

// Field reports kubernetes/kubernetes#63858, #131407 and #134750: with many ended pods the list was longer than the runtime sends, and
// nothing went on, not even their removal.
func TestAListThatIsTooLongForAMessageIsAskedForInPieces(t *testing.T) {
	for _, tt := range []struct {
		name    string
		most    int
		streams bool
	}{
		{"a runtime that streams", 1000, true},
		{"one whose pieces are too long", 100, true},
		{"one that does not stream", 1000, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := serve(t, runtimetest.New(busybox()), cri.Config{}, grpc.MaxSendMsgSize(tt.most), grpc.StreamInterceptor(
				func(s any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
					if !tt.streams {
						return status.Error(codes.Unimplemented, "unknown method")
					}
					return next(s, stream)
				}))
			for i := range 10 {
				conf := &runtime.SandboxConfig{
					Pod:         runtime.PodRef{Namespace: "default", Name: fmt.Sprint("web", i), UID: types.UID(fmt.Sprint("u", i))},
					Annotations: map[string]string{"a": strings.Repeat("x", 500)},
				}
				sandbox, err := e.RunSandbox(t.Context(), conf)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := e.CreateContainer(t.Context(), sandbox, &runtime.ContainerConfig{
					Pod: conf.Pod, Name: "main", Image: "sha256:b0b0", Sandbox: conf, Annotations: conf.Annotations,
				}); err != nil {
					t.Fatal(err)
				}
			}
			sandboxes, err := e.ListSandboxes(t.Context(), runtime.Filter{})
			containers, second := e.ListContainers(t.Context(), runtime.Filter{})
			if tt.streams && tt.most >= 1000 {
				if err != nil || second != nil || len(sandboxes) != 10 || len(containers) != 10 || containers[9].SandboxID == "" {
					t.Errorf("%d sandboxes, %v; %d containers, %v", len(sandboxes), err, len(containers), second)
				}
				return
			}
			for _, err := range []error{err, second} {
				if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "max_send_message_size") {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

// answers waits until the runtime does.
func answers(t *testing.T, e *cri.Engine) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		_, err := e.ListContainers(t.Context(), runtime.Filter{})
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// figures is an observe.Metrics that adds up.
type figures struct {
	mu  sync.Mutex
	sum map[string]float64
}

func (f *figures) Counter(name, _ string, _ ...string) (observe.Metric, error) {
	return figure{f, name}, nil
}

func (f *figures) Gauge(name, _ string, _ ...string) (observe.Metric, error) {
	return figure{f, name}, nil
}

func (f *figures) Histogram(name, _ string, _ []float64, _ ...string) (observe.Metric, error) {
	return figure{f, name}, nil
}

type figure struct {
	*figures
	name string
}

func (f figure) Record(v float64, labels ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum[f.name+"{"+strings.Join(labels, ",")+"}"] += v
}

func (f figure) Forget(...string) {}

func TestCallsAreCountedUnderTheKubeletsNames(t *testing.T) {
	f := &figures{sum: map[string]float64{}}
	e := serve(t, runtimetest.New(), cri.Config{Observe: observe.To{Metrics: f}})
	for range 2 {
		if _, err := e.ListSandboxes(t.Context(), runtime.Filter{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Handler: "gvisor"}); err == nil {
		t.Fatal("there is no such handler")
	}
	if _, err := e.Sandbox(t.Context(), "nobody"); err == nil {
		t.Fatal("there is nobody")
	}
	for name, want := range map[string]float64{
		"kubelet_runtime_operations_total{list_podsandbox}":          2,
		"kubelet_runtime_operations_errors_total{list_podsandbox}":   0,
		"kubelet_runtime_operations_total{podsandbox_status}":        1,
		"kubelet_runtime_operations_errors_total{podsandbox_status}": 1,
		"kubelet_run_podsandbox_errors_total{gvisor}":                1,
	} {
		if f.sum[name] != want {
			t.Errorf("%s = %v, want %v", name, f.sum[name], want)
		}
	}
	if f.sum["kubelet_runtime_operations_duration_seconds{list_podsandbox}"] <= 0 {
		t.Error("no time was recorded")
	}
}

// Whoever sizes a sandbox is told what it has for its containers and for itself.
func TestSizesOfASandboxAreToldWithItsOverhead(t *testing.T) {
	var told []string
	listens := grpc.UnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if q, ok := q.(*criapi.UpdatePodSandboxResourcesRequest); ok {
			r, o := q.GetResources(), q.GetOverhead()
			told = append(told, fmt.Sprint(r.GetCpuShares(), r.GetMemoryLimitInBytes(), " ", o != nil, o.GetCpuShares(), o.GetMemoryLimitInBytes()))
		}
		return next(ctx, q)
	})
	e := serve(t, runtimetest.New(busybox()), cri.Config{}, listens)
	sandbox, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: runtime.PodRef{Namespace: "default", Name: "web", UID: "u1"}})
	if err != nil {
		t.Fatal(err)
	}
	sizes := runtime.Resources{CPUShares: 10, Memory: 20}
	for _, overhead := range []runtime.Resources{{CPUShares: 30, Memory: 40}, {}} {
		if err := e.UpdateSandbox(t.Context(), sandbox, sizes, overhead); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"10 20 true 30 40", "10 20 true 0 0"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
