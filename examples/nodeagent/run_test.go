package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestJournaldLines(t *testing.T) {
	var out bytes.Buffer
	l := logger(&out, 2, true).With("component", "x")
	l.Debug("no")
	l.Info("one", "pod", "web")
	l.Error("two")
	if want := "<6>msg=one component=x pod=web\n<3>msg=two component=x\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

// manager is a service manager that listens.
func manager(t *testing.T) (heard func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		b := make([]byte, 100)
		n, err := c.Read(b)
		if err != nil {
			t.Error(err)
		}
		return string(b[:n])
	}
}

func TestNotify(t *testing.T) {
	heard := manager(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := (notifier{}).Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		if got := heard(); got != want {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}

// A unit of the kubelet's with WatchdogSec= had systemd end the agent again and again.
func TestTheWatchdogIsToldAsLongAsTheAgentIsWell(t *testing.T) {
	heard := manager(t)
	ctx, stop := context.WithCancel(t.Context())
	well := 0
	var out bytes.Buffer
	n := notifier{every: time.Millisecond, log: slog.New(slog.NewTextHandler(&out, nil)), healthy: func() error {
		if well++; well <= 2 {
			return nil
		}
		stop()
		return errors.New("stuck")
	}}
	if err := n.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"} {
		if got := heard(); got != want {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	if !strings.Contains(out.String(), "stuck") {
		t.Errorf("nobody is told why: %q", out.String())
	}
}

func TestHowOftenTheWatchdogWantsToBeTold(t *testing.T) {
	for _, tt := range []struct {
		name, micros, pid string
		every             time.Duration
		bad               bool
	}{
		{name: "there is none"},
		{name: "twice in its time", micros: "30000000", every: 15 * time.Second},
		{name: "its process is named", micros: "30000000", pid: strconv.Itoa(os.Getpid()), every: 15 * time.Second},
		{name: "another process is meant", micros: "30000000", pid: "1"},
		{name: "a second is too short", micros: "1000000", bad: true},
		{name: "no number", micros: "30s", bad: true},
		{name: "more than time has", micros: "9223372036854775807", bad: true},
	} {
		t.Setenv("WATCHDOG_USEC", tt.micros)
		t.Setenv("WATCHDOG_PID", tt.pid)
		if n, err := newNotifier(notifier{}); n.every != tt.every || (err != nil) != tt.bad {
			t.Errorf("%s: %v, %v", tt.name, n.every, err)
		}
	}
}

// Field reports kubernetes/kubernetes#31272 and #90593: where a mount hung, a restart did not help either.
func TestAnAgentLeavesThoughSomethingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for what, tt := range map[string]struct {
			takes time.Duration
			want  error
			after time.Duration
		}{
			"it fails":         {time.Minute, broken, time.Minute},
			"it takes a while": {time.Hour, broken, time.Hour},
			"it hangs":         {2 * time.Hour, nil, 20 * time.Second},
		} {
			begun := time.Now()
			ctx, stop := context.WithTimeout(t.Context(), time.Hour-10*time.Second)
			if what == "it hangs" {
				stop()
			}
			err := leave(ctx, func() error { time.Sleep(tt.takes); return broken })
			if errors.Is(err, broken) != (tt.want != nil) || err == nil || time.Since(begun) != tt.after {
				t.Errorf("%s: %v after %v", what, err, time.Since(begun))
			}
			stop()
			time.Sleep(tt.takes)
		}
	})
}

func TestRuntimeWatchTellsDownAndUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var mu sync.Mutex
		down, back := false, 0
		w := &runtimeWatch{
			log:  slog.New(slog.NewTextHandler(&out, nil)),
			back: func() { back++ },
			info: func(context.Context) (runtime.Info, error) {
				mu.Lock()
				defer mu.Unlock()
				if down {
					return runtime.Info{}, runtime.ErrUnavailable
				}
				return runtime.Info{Name: "test", Ready: runtime.Condition{OK: true}}, nil
			},
		}
		if w.Healthy() == nil {
			t.Error("healthy before it was asked")
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = w.Run(ctx) }()
		set := func(d bool) {
			mu.Lock()
			down = d
			mu.Unlock()
			time.Sleep(20 * time.Second)
			synctest.Wait()
		}
		set(false)
		if w.Healthy() != nil || w.Name() != "test" {
			t.Error(w.Healthy(), w.Name())
		}
		set(true)
		if !errors.Is(w.Healthy(), runtime.ErrUnavailable) || w.Name() != "test" {
			t.Error(w.Healthy(), w.Name())
		}
		set(false)
		if w.Healthy() != nil || back != 1 {
			t.Error(w.Healthy(), back)
		}
		stop()
		synctest.Wait()
		if lines := strings.Count(out.String(), "\n"); lines != 3 {
			t.Errorf("%d lines, want up, down, up:\n%s", lines, out.String())
		}
	})
}

func TestRuntimeWatchNoticesSoonThatItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var noticed time.Duration
		w := &runtimeWatch{
			log:  slog.New(slog.DiscardHandler),
			back: func() { noticed = time.Since(start) - 7*time.Second },
			info: func(context.Context) (runtime.Info, error) {
				if time.Since(start) < 7*time.Second {
					return runtime.Info{}, runtime.ErrUnavailable
				}
				return runtime.Info{Ready: runtime.Condition{OK: true}}, nil
			},
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := w.Run(ctx); err != nil || noticed > time.Second || w.Healthy() != nil {
			t.Errorf("noticed after %v; %v, %v", noticed, err, w.Healthy())
		}
	})
}

func TestAHealthPortThatIsTakenEndsNobody(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := taken.Addr().(*net.TCPAddr).Port
	var out bytes.Buffer
	tries := make(chan error)
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	p := patient{pause: time.Millisecond, log: slog.New(slog.NewTextHandler(&out, nil)), open: func() (*web, error) {
		w, err := newWeb("127.0.0.1", port, ok, nil, slog.New(slog.DiscardHandler))
		tries <- err
		return w, err
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for range 3 {
		err := <-tries
		if err == nil {
			t.Fatal("two on one port")
		}
		if me := fmt.Sprintf("(pid %d)", os.Getpid()); !strings.Contains(err.Error(), me) {
			t.Errorf("%v; want %q named, who has it", err, me)
		}
	}
	taken.Close()
	for err := range tries {
		if err == nil {
			break
		}
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	if err := <-done; err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s, %v", resp.Status, err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, out.String())
	}
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string // in the error; empty: none
	}{
		{"something to run is needed", nil, "give --kubeconfig"},
		{"enough", []string{"--pod-manifest-path", "/m"}, ""},
		{"a word that is no command", []string{"--pod-manifest-path", "/m", "podz"}, `unknown command "podz"`},
		{"a node name with spaces", []string{"--pod-manifest-path", "/m", "--hostname-override", "a b"}, "--hostname-override"},
		{"no address", []string{"--pod-manifest-path", "/m", "--node-ip", "x"}, "--node-ip"},
		{"a key without certificate", []string{"--pod-manifest-path", "/m", "--tls-private-key-file", "k"}, "given together"},
		{"no port", []string{"--pod-manifest-path", "/m", "--port", "70000"}, "port: is 70000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(tt.args, &bytes.Buffer{})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("links only beside the default log directory", func(t *testing.T) {
		o, err := parse([]string{"--pod-manifest-path", "/m", "--pod-logs-dir", "/x"}, &bytes.Buffer{})
		if err != nil || o.containerLogs != "" {
			t.Error(o, err)
		}
	})
}
