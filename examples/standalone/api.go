package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// everybody who can open the socket may do everything: it is the user who runs this program.
type everybody struct{}

func (everybody) Authenticate(*http.Request) (*authnv1.UserInfo, error) {
	return &authnv1.UserInfo{Username: "owner"}, nil
}

func (everybody) Authorize(context.Context, *authnv1.UserInfo, string, string, string) (bool, error) {
	return true, nil
}

// noStreams is what kubectl exec, attach and port-forward are answered: the engine has no streams into containers.
type noStreams struct{}

func (noStreams) Exec(_ context.Context, s server.Session) (http.Handler, error) {
	return nil, fmt.Errorf("processes have no terminal and no streams here (%w); a command without them is run by POST /run/%s/%s/%s?cmd=WORD&cmd=WORD",
		errors.ErrUnsupported, s.Pod.Namespace, s.Pod.Name, s.Container)
}

func (noStreams) Attach(_ context.Context, s server.Session) (http.Handler, error) {
	return nil, fmt.Errorf("nobody can be attached to a process here (%w); what it prints is at /containerLogs/%s/%s/%s?follow=true",
		errors.ErrUnsupported, s.Pod.Namespace, s.Pod.Name, s.Container)
}

func (noStreams) PortForward(context.Context, server.Session) (http.Handler, error) {
	return nil, fmt.Errorf("ports are not forwarded here (%w); pods listen on the addresses of this machine", errors.ErrUnsupported)
}

// looker looks at one pod.
type looker interface {
	Pod(ctx context.Context, uid types.UID) (runtime.Pod, error)
}

// withRun adds the kubelet's /run/<namespace>/<pod>/<container>?cmd=<word>&cmd=<word>: it runs a command in a container,
// without a terminal, and answers its output. The exit code is in the header Exit-Code.
func withRun(h http.Handler, roster *syncloop.Roster, engine runtime.Execer, pods looker) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		id, err := instance(r.Context(), roster, pods, r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		cmd := r.URL.Query()["cmd"]
		if len(cmd) == 1 {
			cmd = strings.Fields(cmd[0])
		}
		result, err := engine.Exec(r.Context(), id, cmd)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Exit-Code", strconv.Itoa(result.Code))
		_, _ = w.Write(result.Output)
	})
	return mux
}

// instance is the ID of the newest instance of a container.
func instance(ctx context.Context, roster *syncloop.Roster, pods looker, namespace, name, container string) (string, error) {
	for _, p := range roster.Pods() {
		if p.Namespace != namespace || p.Name != name {
			continue
		}
		seen, err := pods.Pod(ctx, p.UID)
		if err != nil {
			return "", err
		}
		if c := seen.Newest(container); c != nil {
			return c.ID, nil
		}
		return "", fmt.Errorf("pod %s/%s has no container %q that was started", namespace, name, container)
	}
	return "", fmt.Errorf("there is no pod %s/%s", namespace, name)
}

// api serves a handler on a socket in a directory that only this user can enter.
type api struct {
	path     string
	listener net.Listener
	server   *http.Server
}

func newAPI(path string, h http.Handler) (*api, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("another one serves on %s", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // of one that was killed
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve on a socket: %w", err)
	}
	return &api{path, l, &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}}, nil
}

// Run serves until ctx ends. Followed logs end with it.
func (a *api) Run(ctx context.Context) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	a.server.BaseContext = func(net.Listener) context.Context { return requests }
	served := make(chan error, 1)
	go func() { served <- a.server.Serve(a.listener) }() // ended by Close below
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", a.path, err)
	case <-ctx.Done():
	}
	end()
	if err := a.server.Close(); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", a.path, err)
	}
	return nil
}
