package grpcprobe_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/internal/asuser"
	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/grpcprobe"
)

// answers is a health service that does what it says.
type answers struct {
	healthpb.UnimplementedHealthServer
	check func(context.Context, string) (*healthpb.HealthCheckResponse, error)
}

func (a answers) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return a.check(ctx, r.GetService())
}

func is(s healthpb.HealthCheckResponse_ServingStatus) func(context.Context, string) (*healthpb.HealthCheckResponse, error) {
	return func(context.Context, string) (*healthpb.HealthCheckResponse, error) {
		return &healthpb.HealthCheckResponse{Status: s}, nil
	}
}

func says(c codes.Code, text string) func(context.Context, string) (*healthpb.HealthCheckResponse, error) {
	return func(context.Context, string) (*healthpb.HealthCheckResponse, error) {
		return nil, status.Error(c, text)
	}
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve has a health service answer at l; nil: a server without one.
func serve(t *testing.T, l net.Listener, h healthpb.HealthServer, o ...grpc.ServerOption) {
	t.Helper()
	s := grpc.NewServer(o...)
	if h != nil {
		healthpb.RegisterHealthServer(s, h)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCheckByAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		h    healthpb.HealthServer
		want probe.Result
		text string // part of it
	}{
		{"SERVING is a success", answers{check: is(healthpb.HealthCheckResponse_SERVING)}, probe.Success, "service healthy"},
		{"NOT_SERVING is a failure", answers{check: is(healthpb.HealthCheckResponse_NOT_SERVING)}, probe.Failure, `service unhealthy (responded with "NOT_SERVING")`},
		{"UNKNOWN is a failure", answers{check: is(healthpb.HealthCheckResponse_UNKNOWN)}, probe.Failure, "UNKNOWN"},
		{"SERVICE_UNKNOWN is a failure", answers{check: is(healthpb.HealthCheckResponse_SERVICE_UNKNOWN)}, probe.Failure, "SERVICE_UNKNOWN"},
		{"a status of the future is a failure", answers{check: is(77)}, probe.Failure, "77"},
		{"a service it does not know is a failure", answers{check: says(codes.NotFound, "sorry")}, probe.Failure, "error: health rpc probe failed: rpc error: code = NotFound desc = sorry"},
		{"no health service is a failure", nil, probe.Failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "},
		{"any other code is a failure", answers{check: says(codes.PermissionDenied, "go away")}, probe.Failure, "code = PermissionDenied desc = go away"},
		{"what is no text is made one", answers{check: says(codes.Internal, "a\xff")}, probe.Failure, "a\uFFFD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := listen(t, "127.0.0.1:0")
			serve(t, l, c.h)
			res, text, err := grpcprobe.Check(within(t, time.Minute), l.Addr().String(), "orders")
			if res != c.want || err != nil || !strings.Contains(text, c.text) {
				t.Errorf("got %v, %q, %v; want %v, %q", res, text, err, c.want, c.text)
			}
		})
	}
}

func TestCheckNamesTheService(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	h := health.NewServer()
	h.SetServingStatus("up", healthpb.HealthCheckResponse_SERVING)
	h.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	serve(t, l, h)
	for service, want := range map[string]probe.Result{"": probe.Success, "up": probe.Success, "down": probe.Failure, "missing": probe.Failure} {
		if res, text, err := grpcprobe.Check(within(t, time.Minute), l.Addr().String(), service); res != want || err != nil {
			t.Errorf("service %q: got %v, %q, %v; want %v", service, res, text, err, want)
		}
	}
}

func TestTextsAreAtMost10KiB(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	serve(t, l, answers{check: says(codes.Internal, strings.Repeat("x", 20000))})
	res, text, err := grpcprobe.Check(within(t, time.Minute), l.Addr().String(), "")
	if res != probe.Failure || err != nil || len(text) > 10<<10+100 || !strings.Contains(text, "xxx") {
		t.Errorf("got %v, %d bytes, %v", res, len(text), err)
	}
}

func TestRequestIsTheKubelets(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	seen := make(chan metadata.MD, 2)
	from := make(chan string, 2)
	serve(t, l, answers{check: func(ctx context.Context, _ string) (*healthpb.HealthCheckResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		p, _ := peer.FromContext(ctx)
		seen <- md
		from <- p.Addr.String()
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
	}})
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	for range 2 {
		if res, text, err := grpcprobe.Check(within(t, time.Minute), l.Addr().String(), ""); res != probe.Success {
			t.Fatal(res, text, err)
		}
	}
	md := <-seen
	if ua := md.Get("user-agent"); len(ua) != 1 || !strings.HasPrefix(ua[0], "kube-probe/1.37 grpc-go/") {
		t.Errorf("user agent %q", ua)
	}
	if got := md.Get(":authority"); !slices.Equal(got, []string{l.Addr().String()}) {
		t.Errorf("authority %q", got)
	}
	if a, b := <-from, <-from; a == b {
		t.Errorf("both checks came over the connection from %s", a)
	}
}

func TestIPv6(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 on this machine:", err)
	}
	serve(t, l, health.NewServer())
	if res, text, err := grpcprobe.Check(within(t, time.Minute), l.Addr().String(), ""); res != probe.Success {
		t.Error(res, text, err)
	}
}

// What is no gRPC server in plaintext fails when the time is over, whatever it does.
func TestNoHealthyServerFailsInTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(t *testing.T) (addr string)
		text  string
	}{
		{"nobody listens", deadAddr, "connection refused"},
		{"a listener that never answers", func(t *testing.T) string { t.Helper(); return listen(t, "127.0.0.1:0").Addr().String() }, "timeout: failed to connect service"},
		{"a server that speaks TLS", tlsServer, "timeout: failed to connect service"},
		{"a server that speaks HTTP/1", webServer, "timeout: failed to connect service"},
		{"a health service that hangs", hangingServer, "timeout: health rpc did not complete within"},
		{"an address that is none", func(*testing.T) string { return "nonsense" }, "nonsense"},
		{"an address that is worse", func(*testing.T) string { return "a%zz/b?c#d" }, "a%zz/b?c#d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := c.setup(t)
			for patience := 300 * time.Millisecond; ; patience *= 4 { // what is wrong may come out late on a busy machine
				res, text, err := grpcprobe.Check(within(t, patience), addr, "")
				known := strings.Contains(text, c.text)
				if res != probe.Failure || err != nil || !known && patience > 10*time.Second {
					t.Errorf("got %v, %q, %v; want a failure with %q", res, text, err, c.text)
					return
				}
				if known {
					return
				}
			}
		})
	}
}

func deadAddr(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", asuser.FreePort(t))
}

func tlsServer(t *testing.T) string {
	t.Helper()
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	cert := web.TLS.Certificates[0]
	web.Close()
	l := listen(t, "127.0.0.1:0")
	serve(t, l, health.NewServer(), grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}})))
	return l.Addr().String()
}

func webServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = nil
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func hangingServer(t *testing.T) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	serve(t, l, answers{check: func(ctx context.Context, _ string) (*healthpb.HealthCheckResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	return l.Addr().String()
}

func TestServerThatComesUpInTimeIsFound(t *testing.T) {
	addr := deadAddr(t)
	answer := make(chan probe.Result)
	go func() {
		res, _, _ := grpcprobe.Check(within(t, time.Minute), addr, "")
		answer <- res
	}()
	select {
	case res := <-answer:
		t.Fatalf("%v before the server is up", res)
	case <-time.After(50 * time.Millisecond):
	}
	serve(t, listen(t, addr), health.NewServer())
	if res := <-answer; res != probe.Success {
		t.Errorf("got %v", res)
	}
}

func TestWithoutDeadlineNobodyListeningIsAFailureAtOnce(t *testing.T) {
	addr := deadAddr(t)
	if res, text, err := grpcprobe.Check(t.Context(), addr, ""); res != probe.Failure || err != nil || !strings.Contains(text, addr) {
		t.Errorf("got %v, %q, %v", res, text, err)
	}
}

func TestCancelledIsNoAnswer(t *testing.T) {
	lost := errors.New("lost interest")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(lost) })
	if res, _, err := grpcprobe.Check(ctx, hangingServer(t), ""); res != probe.Unknown || !errors.Is(err, lost) {
		t.Errorf("got %v, %v", res, err)
	}
}

// FuzzAnswer has a server send anything: there is a result, and nothing goes on after it.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\x00\x04\x00\x00\x00\x01\x0a\x03\x0a\x01\x0d"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		l := listen(t, "127.0.0.1:0")
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write(answer)
				_, _ = io.CopyN(io.Discard, c, 24)
				_ = c.Close()
			}
		})
		res, text, err := grpcprobe.Check(within(t, 20*time.Millisecond), l.Addr().String(), "")
		_ = l.Close()
		if res == probe.Unknown && err == nil || res != probe.Unknown && (err != nil || len(text) > 11<<10) {
			t.Errorf("got %v, %d bytes, %v", res, len(text), err)
		}
	})
}
