package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
)

// standIn is a runtime for the example; a program has containerd here.
func standIn() (endpoint string, stop func()) {
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		panic(err)
	}
	socket := filepath.Join(dir, "containerd.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	server := criserver.New(runtimetest.New(runtime.Image{ID: "sha256:1", Tags: []string{"example.com/web:1"}, Size: 1}))
	go func() { _ = server.Serve(l) }()
	return "unix://" + socket, func() { server.Stop(); _ = os.RemoveAll(dir) }
}

func Example() {
	endpoint, stop := standIn() // "unix:///run/containerd/containerd.sock"
	defer stop()
	conn, err := cri.Dial(endpoint)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	engine, err := cri.New(cri.Config{Runtime: conn})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	info, err := engine.Info(ctx)
	fmt.Println(info.Ready.OK, err)
	images, err := engine.ListImages(ctx)
	fmt.Println(images[0].Tags, err)
	_, err = engine.Sandbox(ctx, "none")
	fmt.Println(errors.Is(err, runtime.ErrNotFound))
	// Output:
	// true <nil>
	// [example.com/web:1] <nil>
	// true
}
