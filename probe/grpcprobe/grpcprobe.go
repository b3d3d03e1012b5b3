package grpcprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
	answer, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: service}, grpc.WaitForReady(bounded))
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return probe.Unknown, "", context.Cause(ctx)
	case err != nil:
		return probe.Failure, reason(addr, service, err), nil
	case answer.GetStatus() != health.HealthCheckResponse_SERVING:
		return probe.Failure, fmt.Sprintf("%s at %s is %v", named(service), addr, answer.GetStatus()), nil
	}
	return probe.Success, "", nil
}

// reason says why there is no status, with what the server said about it.
func reason(addr, service string, err error) string {
	s := status.Convert(err)
	said := strings.ToValidUTF8(s.Message()[:min(len(s.Message()), limit)], "\uFFFD")
	if s.Code() == codes.Unimplemented {
		return fmt.Sprintf("%s has no gRPC health service: %s", addr, said)
	}
	if s.Code() == codes.NotFound {
		return fmt.Sprintf("%s does not know %s: %s", addr, named(service), said)
	}
	if s.Code() == codes.DeadlineExceeded {
		return fmt.Sprintf("timeout: no answer of %s in time: %s", addr, said)
	}
	return fmt.Sprintf("no answer of %s: %v: %s", addr, s.Code(), said)
}

func named(service string) string { return cmp.Or(service, "the server") }
