package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// targets are the ports of a process that is probed, on all addresses of this host.
type targets struct {
	HTTP, TCP, GRPC int
	NoHTTP, NoTCP   int    // take connections and never answer; never take one
	Runtime         string // socket of a container runtime over CRI

	queue []net.Conn
}

// runtimeStub is a container runtime that has run every command already.
type runtimeStub struct {
	cri.UnimplementedRuntimeServiceServer
}

func (runtimeStub) ExecSync(context.Context, *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	return &cri.ExecSyncResponse{Stdout: []byte("fine")}, nil
}

// playTargets serves until standard input ends, and says where on standard output.
func playTargets() error {
	var t targets
	dir, err := os.MkdirTemp("", "probe-targets")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := t.serve(dir); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (t *targets) serve(dir string) error {
	quiet := log.New(io.Discard, "", 0)
	web := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
	grpcServer := grpc.NewServer()
	healthpb.RegisterHealthServer(grpcServer, health.NewServer())
	var err error
	t.Runtime = dir + "/cri.sock"
	socket, e := net.Listen("unix", t.Runtime)
	err = errors.Join(err, e)
	t.HTTP, e = at(func(l net.Listener) { _ = web.Serve(l) })
	err = errors.Join(err, e)
	t.GRPC, e = at(func(l net.Listener) { _ = grpcServer.Serve(l) })
	err = errors.Join(err, e)
	t.TCP, e = at(func(l net.Listener) { accept(l, func(c net.Conn) { _ = c.Close() }) })
	err = errors.Join(err, e)
	t.NoHTTP, e = at(func(l net.Listener) {
		accept(l, func(c net.Conn) { go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }() })
	})
	err = errors.Join(err, e)
	t.NoTCP, t.queue, e = deaf()
	if err = errors.Join(err, e); err != nil {
		return err
	}
	runtimeServer := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(runtimeServer, runtimeStub{})
	go func() { _ = runtimeServer.Serve(socket) }()
	return nil
}

func at(serve func(net.Listener)) (port int, err error) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return 0, err
	}
	go serve(l)
	return l.Addr().(*net.TCPAddr).Port, nil
}

func accept(l net.Listener, f func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		f(c)
	}
}

// deaf is a port whose queue is full: who connects there hangs. The queue is to be kept.
func deaf() (port int, queue []net.Conn, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, nil, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{}); err != nil {
		return 0, nil, err
	}
	if err := syscall.Listen(fd, 0); err != nil {
		return 0, nil, err
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, nil, err
	}
	port = sa.(*syscall.SockaddrInet4).Port
	for range 8 {
		c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), 200*time.Millisecond)
		if err != nil {
			break
		}
		queue = append(queue, c)
	}
	return port, queue, nil //nolint:nilerr // that nobody is taken any more is what was wanted
}
