package bench

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
)

// image is what all pods on a runtime in memory run.
const image = "kubeletkit.dev/demo:1"

// own is in the user agent of this package's requests, which are not counted.
const own = "kubeletkit-bench"

// Serve serves a container runtime in memory at a socket, and an API server in memory at an address, until ctx ends. GET
// /requests there is how many requests others have made so far.
func Serve(ctx context.Context, socket, address string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var config net.ListenConfig
	runtimeSocket, err := config.Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	engine := runtimetest.New(
		runtime.Image{ID: "sha256:1", Tags: []string{image}, Size: 1 << 20},
		runtime.Image{ID: "sha256:2", Tags: []string{"registry.k8s.io/pause:3.10.2"}, Size: 1 << 20, Pinned: true},
	)
	engine.ImageDir = filepath.Dir(socket) // a kubelet wants to measure it
	cri := criserver.New(engine)
	objects := apifake.New()
	defer objects.Close()
	api := &http.Server{Addr: address, Handler: counted(objects), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() {
		cri.Stop()
		_ = api.Close()
	})
	failed := make(chan error, 2)
	go func() { failed <- cri.Serve(runtimeSocket) }()
	go func() { failed <- api.ListenAndServe() }()
	err = <-failed
	cri.Stop()
	_ = api.Close()
	other := <-failed
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(err, other)
}

// counted counts requests to the server, and lets it forget them.
func counted(objects *apifake.Server) http.Handler {
	var requests atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/requests" {
			_, _ = w.Write(strconv.AppendInt(nil, requests.Load(), 10))
			return
		}
		if r.UserAgent() != own && requests.Add(1)%1000 == 0 {
			objects.Calls()
		}
		objects.ServeHTTP(w, r)
	})
}
