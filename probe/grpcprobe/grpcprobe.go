package grpcprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/probe"
)

const limit = 10 << 10 // bytes of a message that are shown

// Check asks the health service at addr ("10.0.0.5:9000", "[fd00::5]:9000") for a service; the empty name is the whole
// server. SERVING is Success, everything else Failure: another status, a service or a health service the server does
// not have, TLS where plaintext is spoken, and no answer before the deadline of ctx, which covers connecting and asking.
// A server that does not listen yet is tried again until that deadline, as the kubelet does; without a deadline that is
// a Failure at once. Nothing goes through a proxy.
func Check(ctx context.Context, addr, service string) (probe.Result, string, error) {
	conn, err := grpc.NewClient("passthrough:///"+url.PathEscape(addr),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(probe.UserAgent),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return probe.Dialer().DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		return probe.Unknown, "", fmt.Errorf("make a client for %q: %w", addr, err)
	}
	defer conn.Close()

	_, bounded := ctx.Deadline()
	patience := probe.Patience(ctx)
	answer, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: service}, grpc.WaitForReady(bounded))
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return probe.Unknown, "", context.Cause(ctx)
	case err != nil:
		return probe.Failure, reason(addr, err, patience, conn.GetState() == connectivity.Ready), nil
	case answer.GetStatus() != health.HealthCheckResponse_SERVING:
		return probe.Failure, fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus().String()), nil
	}
	return probe.Success, "service healthy", nil
}

// reason says why there is no status: it begins with the kubelet's words, which people look for, and ends with what the
// server or the connection said.
func reason(addr string, err error, patience time.Duration, connected bool) string {
	s := status.Convert(err)
	said := strings.ToValidUTF8(s.Message()[:min(len(s.Message()), limit)], "\uFFFD")
	switch code := s.Code(); {
	case code == codes.Unimplemented:
		return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + said
	case code == codes.DeadlineExceeded && connected:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", patience)
	case code == codes.DeadlineExceeded:
		return fmt.Sprintf("timeout: failed to connect service %q within %v: %s", addr, patience, said)
	default:
		return fmt.Sprintf("error: health rpc probe failed: rpc error: code = %v desc = %s", code, said)
	}
}
