// Command provider runs pods on something that is no container runtime: an invented cloud that rents machines.
//
//	go run ./examples/provider examples/provider/manifests
//
// A backend that knows whole pods implements syncloop.Runtime, five methods (runtime.go), and gets static pods, admission,
// probes, statuses and the kubelet's HTTP API around it. A type written for virtual-kubelet's provider interface fits
// through an adapter (adapter.go), with its own statuses: -adapter shows that. Both pass the suite that
// syncloop/looptest has for runtimes (contract_test.go). The program prints a line whenever a pod changes; Ctrl-C ends it,
// and its cloud with it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/pleg"
	probes "github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/staticpod"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func main() {
	adapter := flag.Bool("adapter", false, "run the pods through a provider written for virtual-kubelet")
	socket := flag.String("socket", "", "serve /pods and /containerLogs on this unix socket")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "provider: give one directory with manifests, such as examples/provider/manifests")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), *socket, *adapter, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "provider:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left to be done
	}
}

// parts are what differs between the two ways.
func parts(adapter bool) (syncloop.Runtime, Runtime, func(status.Input) v1.PodStatus) {
	own := Runtime{&Cloud{Boot: 200 * time.Millisecond, Shutdown: 200 * time.Millisecond}}
	if !adapter {
		return own, own, status.Compute
	}
	a := Adapt(newLegacy(own.cloud))
	return a, own, a.Status
}

func run(ctx context.Context, manifests, socket string, adapter bool, out io.Writer) error {
	path, err := filepath.Abs(manifests)
	if err != nil {
		return err
	}
	obs := observe.To{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))} // what goes wrong
	var roster syncloop.Roster
	pods, own, compute := parts(adapter)
	lifecycle, err := pleg.New(pleg.Config{Source: pods, Tell: func(e pleg.Event) { roster.Wake(e.Pod.UID) }, Observe: obs})
	if err != nil {
		return err
	}
	health, err := probes.New(probes.Config{Exec: own, Changed: roster.Wake, Observe: obs})
	if err != nil {
		return err
	}
	files, err := staticpod.NewDir(staticpod.Config{Path: path, Node: "cloud", Observe: obs})
	if err != nil {
		return err
	}
	loop, err := syncloop.New(syncloop.Config{
		Sources: map[string]syncloop.PodSource{"file": files}, Runtime: pods, Sink: &lines{out: out, last: map[types.UID]string{}},
		Probes: health, States: lifecycle, Roster: &roster, Status: compute, Observe: obs,
	})
	if err != nil {
		return err
	}
	handler, err := server.New(server.Config{Pods: &roster, Running: pods, Logs: own, Access: everybody{}, Observe: obs})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return lifecycle.Run(ctx) })
	g.Go(func() error { return health.Run(ctx) })
	g.Go(func() error { return loop.Run(ctx) })
	if socket != "" {
		g.Go(func() error { return serve(ctx, socket, handler) })
	}
	return g.Wait()
}

// serve serves until ctx ends. Who can open the socket may ask.
func serve(ctx context.Context, socket string, h http.Handler) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

type everybody struct{}

func (everybody) Authenticate(*http.Request) (*authnv1.UserInfo, error) {
	return &authnv1.UserInfo{}, nil
}

func (everybody) Authorize(context.Context, *authnv1.UserInfo, string, string, string) (bool, error) {
	return true, nil
}

// lines is a sink that prints a line for each pod that looks different from before.
type lines struct {
	out io.Writer

	mu   sync.Mutex // guards last
	last map[types.UID]string
}

func (l *lines) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error {
	ready, restarts := 0, int32(0)
	for _, c := range s.ContainerStatuses {
		restarts += c.RestartCount
		if c.Ready {
			ready++
		}
	}
	text := fmt.Sprintf("%s/%s: %s, %d of %d ready, %d restarts %s", pod.Namespace, pod.Name, s.Phase, ready, len(pod.Spec.Containers), restarts, s.Reason)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last[pod.UID] != text {
		l.last[pod.UID] = text
		fmt.Fprintln(l.out, text)
	}
	return nil
}

func (l *lines) Finished(_ context.Context, pod *v1.Pod) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "%s/%s: has ended\n", pod.Namespace, pod.Name)
	return nil
}
