package cri

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Config describes an Engine. Runtime is required.
type Config struct {
	Runtime *grpc.ClientConn // see Dial
	Image   *grpc.ClientConn // where images are asked for; nil is Runtime

	// Timeout of one call; zero is two minutes. Making a sandbox gets twice that, stopping a container its
	// grace in addition; pulls and commands have no deadline but that of their ctx.
	Timeout time.Duration

	Observe observe.To
}

// Engine is a runtime.Engine over CRI.
type Engine struct {
	runtime cri.RuntimeServiceClient
	image   cri.ImageServiceClient
	timeout time.Duration
	metrics *metrics
	owners  owners
}

var (
	_ runtime.Engine      = (*Engine)(nil)
	_ runtime.Notifier    = (*Engine)(nil)
	_ runtime.StreamURLs  = (*Engine)(nil)
	_ runtime.LogReopener = (*Engine)(nil)
	_ runtime.Stats       = (*Engine)(nil)
)

// New makes an engine. It asks the runtime nothing.
func New(cfg Config) (*Engine, error) {
	if cfg.Runtime == nil {
		return nil, errors.New("cri: Runtime is required")
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("cri: Timeout %v must not be negative", cfg.Timeout)
	}
	m, err := newMetrics(cfg.Observe)
	if err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	return &Engine{
		runtime: cri.NewRuntimeServiceClient(cfg.Runtime),
		image:   cri.NewImageServiceClient(cmp.Or(cfg.Image, cfg.Runtime)),
		timeout: cmp.Or(cfg.Timeout, 2*time.Minute),
		metrics: m,
		owners:  owners{of: map[string]string{}},
	}, nil
}

// maxMessage bounds an answer, in bytes. A list of all containers of a full node with their annotations
// is some megabytes.
const maxMessage = 64 << 20

// Windows of a connection, in bytes. Fixed ones make it do without the pings by which gRPC measures a line: over a socket they
// cost a fifth of each call and tell nothing.
const (
	streamWindow = 1 << 20
	connWindow   = 4 << 20
)

// Dial prepares a connection to a runtime's socket, "unix:///run/containerd/containerd.sock". It does not
// wait for the runtime; the connection is made by the first call and made again whenever it broke.
func Dial(endpoint string) (*grpc.ClientConn, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("dial runtime %q: want unix:// and an absolute path", endpoint)
	}
	retry := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
	)
	if err != nil {
		return nil, fmt.Errorf("dial runtime %q: %w", endpoint, err)
	}
	return conn, nil
}
