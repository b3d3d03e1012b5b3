// Command edge is an agent for a device: what is to run comes as a JSON document over HTTP or is pushed, how it runs is
// appended to a file, and containers are processes of the device.
//
//	go run ./examples/edge -url http://fleet.example/devices/7/pods.json -root /var/lib/edge -status /var/log/edge.json
//
// It shows what an agent of your own needs: a source (source.go), a sink, an engine, and the loop between them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/pleg"
	probes "github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/staticpod"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func main() {
	if process.Shim() {
		return
	}
	source := Source{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flag.StringVar(&source.URL, "url", "", "where the document is asked for")
	flag.DurationVar(&source.Every, "every", 30*time.Second, "how often it is asked for")
	root := flag.String("root", "", "state of pods")
	push := flag.String("push", "", "unix socket to which documents are sent")
	file := flag.String("status", "/dev/stdout", "file that statuses are appended to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *push != "" {
		source.Push = socket(*push)
	}
	if err := run(ctx, &source, *root, *file); err != nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left to be done
	}
}

func run(ctx context.Context, source *Source, root, file string) error {
	if !filepath.IsAbs(root) {
		return errors.New("-root is required and must be absolute")
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	source.File = filepath.Join(root, "pods.json")
	obs := observe.To{Log: source.Log}
	hosts := func() []string { return []string{"127.0.0.1"} }

	var roster syncloop.Roster
	engine, err := process.New(process.Config{Root: filepath.Join(root, "engine"), IPs: hosts, Observe: obs})
	if err != nil {
		return err
	}
	pods, err := podruntime.New(podruntime.Config{
		Engine: engine, HostIPs: hosts, Root: root, LogRoot: filepath.Join(root, "logs"), Changed: roster.Wake, Observe: obs,
	})
	if err != nil {
		return err
	}
	lifecycle, err := pleg.New(pleg.Config{Source: pods, Notifier: engine, Tell: func(e pleg.Event) { roster.Wake(e.Pod.UID) }, Observe: obs})
	if err != nil {
		return err
	}
	health, err := probes.New(probes.Config{Exec: engine, HostIPs: hosts, Changed: roster.Wake})
	if err != nil {
		return err
	}
	statuses, err := status.New(status.Config{Sink: appender{out}, Observe: obs})
	if err != nil {
		return err
	}
	loop, err := syncloop.New(syncloop.Config{
		Sources: map[string]syncloop.PodSource{"fleet": source}, Runtime: pods, Sink: statuses, Probes: health,
		States: pods.Over(lifecycle), Roster: &roster, Sweepers: []syncloop.Sweeper{pods}, HostIPs: hosts, Observe: obs,
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return statuses.Run(ctx) })
	g.Go(func() error { return lifecycle.Run(ctx) })
	g.Go(func() error { return health.Run(ctx) })
	g.Go(func() error { return loop.Run(ctx) })
	return g.Wait()
}

// appender is a status sink: each status becomes a line of JSON at the end of a file.
type appender struct{ w io.Writer }

// line is what is kept of a status.
type line struct {
	Time     time.Time `json:"time"`
	Pod      string    `json:"pod"`
	Phase    string    `json:"phase"`
	Ready    bool      `json:"ready"`
	Reason   string    `json:"reason,omitempty"`
	Finished bool      `json:"finished,omitempty"`
}

func (a appender) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error {
	l := line{Time: time.Now(), Pod: pod.Namespace + "/" + pod.Name, Phase: string(s.Phase), Reason: s.Reason}
	for _, c := range s.Conditions {
		l.Ready = l.Ready || c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	}
	return json.NewEncoder(a.w).Encode(l) // one write, so lines of several pods do not mix
}

func (a appender) Finished(_ context.Context, pod *v1.Pod) error {
	return json.NewEncoder(a.w).Encode(line{Time: time.Now(), Pod: pod.Namespace + "/" + pod.Name, Phase: string(pod.Status.Phase), Finished: true})
}

// socket is a Push: whoever can open it sends one document in each connection. A broker's client would stand here.
type socket string

func (s socket) Subscribe(ctx context.Context, got func([]byte)) error {
	if err := os.Remove(string(s)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", string(s))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if b, err := io.ReadAll(io.LimitReader(c, staticpod.MaxBytes)); err == nil {
			got(b)
		}
		c.Close()
	}
}
