package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inPieces asks for a list as a stream, if err says that it was too long for a message. Without that a node with too many ended pods
// could be neither looked at nor cleaned.
func inPieces[Q, A, I any](
	ctx context.Context, e *Engine, err error, c call,
	open func(context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[A], error), q Q, items func(*A) []I,
) ([]I, error) {
	if status.Code(err) != codes.ResourceExhausted {
		return nil, err
	}
	list, streamed := invoke(ctx, e, c, func(ctx context.Context, q Q, _ ...grpc.CallOption) ([]I, error) {
		ctx, cancel := context.WithCancel(ctx) // ends the stream
		defer cancel()
		stream, err := open(ctx, q)
		if err != nil {
			return nil, err
		}
		return collect(stream, items)
	}, q)
	if errors.Is(streamed, errors.ErrUnsupported) || status.Code(streamed) == codes.ResourceExhausted {
		return nil, fmt.Errorf("%w: have the runtime send messages of up to %d bytes (containerd: grpc.max_send_message_size), or remove ended pods", err, maxMessage)
	}
	return list, streamed
}

// collect reads a stream to its end.
func collect[A, I any](stream grpc.ServerStreamingClient[A], items func(*A) []I) (list []I, err error) {
	for {
		a, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, items(a)...)
	}
}
