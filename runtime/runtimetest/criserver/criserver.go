// Package criserver shows a [runtimetest.Engine] as a container runtime that speaks CRI, so that what
// talks to a runtime's socket can be tested without a runtime: an engine over CRI, a whole node agent
// whose runtime hangs, fails or is restarted.
//
//	engine := runtimetest.New(busybox)
//	server := criserver.New(engine)
//	listener, err := net.Listen("unix", socket)
//	go server.Serve(listener)
//	defer server.Stop()
//
// What the engine does not know (streaming sessions, security, devices) is taken and forgotten, or
// answered with Unimplemented. Faults injected into the engine show as a runtime's faults would. A server
// that was stopped can be followed by another one over the same engine: the runtime was restarted.
package criserver

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// New is a server with both services of CRI over an engine. The caller serves and stops it.
func New(e *runtimetest.Engine, options ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(options...)
	cri.RegisterRuntimeServiceServer(s, &runtimeService{engine: e})
	cri.RegisterImageServiceServer(s, &imageService{engine: e})
	return s
}

// answer gives a runtime's error its code.
func answer[A any](a A, err error) (A, error) {
	switch {
	case err == nil:
		return a, nil
	case errors.Is(err, runtime.ErrNotFound):
		return a, status.Error(codes.NotFound, err.Error())
	case errors.Is(err, runtime.ErrUnavailable):
		return a, status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, errors.ErrUnsupported):
		return a, status.Error(codes.Unimplemented, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return a, status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return a, status.Error(codes.Canceled, err.Error())
	default:
		return a, status.Error(codes.Unknown, err.Error())
	}
}
