package grpcprobe_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kubeletkit/kubeletkit/probe/grpcprobe"
)

func ExampleCheck() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	healthy := health.NewServer() // all is SERVING until something says otherwise
	healthy.SetServingStatus("orders", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, healthy)
	go s.Serve(l)
	defer s.Stop()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, service := range []string{"", "orders"} {
		result, _, err := grpcprobe.Check(ctx, l.Addr().String(), service)
		fmt.Println(result, err)
	}
	// Output:
	// success <nil>
	// failure <nil>
}
