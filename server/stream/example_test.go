package stream_test

import (
	"context"
	"fmt"
	"net/url"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/stream"
)

// Any engine that has addresses for sessions, and anything that knows pods, make the Streams of a server.
func ExampleProxy() {
	e := &engine{base: &url.URL{Scheme: "http", Host: "127.0.0.1:41234"}}
	h, err := server.New(server.Config{
		Pods:    pods{podOf("web", "u1")},
		Access:  server.AdminAccess{Token: "from a file"},
		Streams: stream.Proxy{URLs: e, Pods: e},
	})
	fmt.Println(h != nil, err)

	// What the server asks for when somebody runs a command:
	p := stream.Proxy{URLs: e, Pods: e}
	_, err = p.Exec(context.Background(), server.Session{
		Pod: podOf("web", "u1"), Container: "app", Command: []string{"ls"}, StreamOptions: runtime.StreamOptions{Stdout: true},
	})
	fmt.Println(e.asked, err)
	// Output:
	// true <nil>
	// exec app-2 [ls] {Stdin:false Stdout:true Stderr:false TTY:false} <nil>
}
