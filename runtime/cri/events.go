package cri

import (
	"context"
	"errors"
	"io"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Events follows the runtime's event stream. A runtime without one answers errors.ErrUnsupported.
func (e *Engine) Events(ctx context.Context, tell func(runtime.Event)) error {
	begin := time.Now()
	err := e.follow(ctx, tell)
	if ctx.Err() != nil {
		err = nil
	}
	e.metrics.record("get_container_events", time.Since(begin), err)
	return err
}

func (e *Engine) follow(ctx context.Context, tell func(runtime.Event)) error {
	const what = "follow the runtime's events"
	stream, err := e.runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		return failure(what, err)
	}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New(what + ": the runtime ended the stream")
		}
		if err != nil {
			return failure(what, err)
		}
		tell(runtime.Event{
			Pod:       sandboxPod(event.GetPodSandboxStatus().GetMetadata()),
			Container: event.GetContainerId(),
			At:        at(event.GetCreatedAt()),
			Gone:      event.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT,
		})
	}
}
