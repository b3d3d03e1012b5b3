package criserver_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
)

func Example() {
	dir, err := os.MkdirTemp("", "criserver")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "runtime.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	server := criserver.New(runtimetest.New(runtime.Image{ID: "sha256:1", Tags: []string{"example.com/web:1"}, Size: 10}))
	go server.Serve(listener)
	defer server.Stop()

	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	images, err := cri.NewImageServiceClient(conn).ListImages(context.Background(), &cri.ListImagesRequest{})
	if err != nil {
		panic(err)
	}
	for _, i := range images.GetImages() {
		fmt.Println(i.GetId(), i.GetRepoTags())
	}
	// Output: sha256:1 [example.com/web:1]
}
