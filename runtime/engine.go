package runtime

import (
	"context"
	"net/url"
	"time"
)

// Engine makes and shows sandboxes, containers and images. All methods are safe for concurrent use and
// return soon after ctx ends. A method an engine has no way to do returns errors.ErrUnsupported.
// Everything an engine made outlives the process that asked for it; the next one finds it by listing.
// The contract suite runtimetest.Run checks what these comments promise.
type Engine interface {
	Lister
	Sandboxes
	Containers
	Images

	// Info says how the engine is. An engine that answers but is not ready says so in Info.Ready.
	Info(ctx context.Context) (Info, error)
}

// Lister looks. Lists are shallow (see the fields of [Sandbox] and [Container]), filtered by the engine
// and in no order; the single looks are complete, and report ErrNotFound for what does not exist.
type Lister interface {
	ListSandboxes(ctx context.Context, f Filter) ([]Sandbox, error)
	ListContainers(ctx context.Context, f Filter) ([]Container, error)
	Sandbox(ctx context.Context, id string) (Sandbox, error)
	Container(ctx context.Context, id string) (Container, error)
}

// Sandboxes makes and ends sandboxes.
type Sandboxes interface {
	// RunSandbox makes a sandbox and starts it. A second one of the same pod and attempt is an error.
	RunSandbox(ctx context.Context, c *SandboxConfig) (id string, err error)

	// UpdateSandbox tells what a sandbox is to have for its containers, and beside them for itself. It is for engines that
	// size one, such as a virtual machine; others answer errors.ErrUnsupported.
	UpdateSandbox(ctx context.Context, id string, r, overhead Resources) error

	// StopSandbox stops all containers in it at once, then the sandbox, and gives back its network.
	// One that is stopped or gone is no error.
	StopSandbox(ctx context.Context, id string) error

	// RemoveSandbox removes a sandbox and its containers, stopping what still runs. One that is gone is no error.
	RemoveSandbox(ctx context.Context, id string) error
}

// Containers makes and ends containers.
type Containers interface {
	// CreateContainer makes a container in a ready sandbox. The same name and attempt a second time in
	// one pod is an error. ErrNotFound: no such sandbox or image.
	CreateContainer(ctx context.Context, sandbox string, c *ContainerConfig) (id string, err error)

	// StartContainer starts a created container, once.
	StartContainer(ctx context.Context, id string) error
	UpdateContainer(ctx context.Context, id string, r Resources) error

	// StopContainer sends the stop signal, waits up to grace for the container to end, then kills it, and
	// returns when it has ended. Zero grace kills at once. One that has ended or is gone is no error.
	StopContainer(ctx context.Context, id string, grace time.Duration) error

	// RemoveContainer removes a container, killing one that runs. Its log file stays. One that is gone is
	// no error.
	RemoveContainer(ctx context.Context, id string) error
	Execer
}

// Execer runs commands in running containers.
type Execer interface {
	// Exec runs a command to its end. A command that ran is no error, whatever its exit code. When ctx ends
	// first the command is killed and the error is context.DeadlineExceeded or context.Canceled. One that the container does not
	// have, or may not run, is ErrNoCommand.
	Exec(ctx context.Context, id string, cmd []string) (ExecResult, error)
}

// Images brings, shows and removes images.
type Images interface {
	// PullImage brings an image and returns the ref by which CreateContainer finds it.
	PullImage(ctx context.Context, r PullRequest) (ref string, err error)

	// Image finds an image by ID, tag or digest; ErrNotFound when it is not on this host.
	Image(ctx context.Context, ref string) (Image, error)
	ListImages(ctx context.Context) ([]Image, error)

	// RemoveImage removes an image with all its names. One that is gone is no error.
	RemoveImage(ctx context.Context, id string) error
}

// The rest are abilities only some engines have. They are handed over in a Config field, never looked for.

// Notifier tells of changes as they happen, until ctx ends (nil) or the stream breaks (an error).
// tell is called from one goroutine and must not block.
type Notifier interface {
	Events(ctx context.Context, tell func(Event)) error
}

// StreamURLs opens interactive sessions at an address of the engine. An address is good for one session,
// soon after it was asked for, and needs no further credentials: it must not be shown to anyone.
type StreamURLs interface {
	ExecURL(ctx context.Context, id string, cmd []string, o StreamOptions) (*url.URL, error)
	AttachURL(ctx context.Context, id string, o StreamOptions) (*url.URL, error)
	PortForwardURL(ctx context.Context, sandbox string, ports []int32) (*url.URL, error)
}

// LogReopener makes the engine open a container's log file anew, after it was renamed. The new file is there when it returns.
type LogReopener interface {
	ReopenLog(ctx context.Context, id string) error
}

// Stats are the engine's figures of what runs and of the file systems it lives on.
type Stats interface {
	ContainerStats(ctx context.Context, f Filter) ([]Usage, error)

	// ImageFS is where images lie, the first of them first, and if the engine tells that, where containers write.
	ImageFS(ctx context.Context) ([]FSUsage, error)
}
