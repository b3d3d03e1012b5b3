package cri

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// call describes one RPC to those who watch.
type call struct {
	op      string        // operation_type of the metrics
	what    string        // what errors begin with; empty: they are the runtime's words alone
	longer  time.Duration // beyond the engine's timeout
	endless bool          // ends with ctx alone
}

// invoke is the way of every RPC: its deadline, its figures, its error.
func invoke[Q, A any](
	ctx context.Context, e *Engine, c call, rpc func(context.Context, Q, ...grpc.CallOption) (A, error), q Q,
) (A, error) {
	if !c.endless {
		d := e.timeout + min(c.longer, math.MaxInt64-e.timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	begin := time.Now()
	a, err := rpc(ctx, q)
	e.metrics.record(c.op, time.Since(begin), err)
	return a, failure(c.what, err)
}

// callError is what a runtime answered, in its words, and what that means to a caller.
type callError struct {
	what   string
	status *status.Status
	means  error // nil: nothing in particular
}

func (e *callError) Error() string {
	if e.what == "" {
		return e.status.Message()
	}
	return e.what + ": " + e.status.Message()
}

func (e *callError) Unwrap() error { return e.means }

// GRPCStatus is what status.FromError looks for.
func (e *callError) GRPCStatus() *status.Status { return e.status }

// failure makes of an RPC's error one that a caller can act on; nil stays nil.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	return &callError{what: what, status: s, means: meaning(s)}
}

// noCommand is what OCI runtimes say of a command that is not there or cannot be run, and of nothing that fails around it.
var noCommand = regexp.MustCompile(`executable file .*not found in \$PATH|` +
	`(?:process|caused): exec:? \S+(?:: stat \S+)?: (?:no such file or directory|permission denied|is a directory|not a directory|exec format error)`)

func meaning(s *status.Status) error {
	switch s.Code() {
	case codes.NotFound:
		return runtime.ErrNotFound
	case codes.Unavailable:
		return runtime.ErrUnavailable
	case codes.Unimplemented:
		return errors.ErrUnsupported
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	default:
	}
	if strings.Contains(s.Message(), "is reserved") { // a name, by a call that was cut and is being undone; there is no code for it
		return runtime.ErrInUse
	}
	if noCommand.MatchString(s.Message()) {
		return runtime.ErrNoCommand
	}
	return nil
}

// gone makes "it is not there" a success, for calls that take away.
func gone(err error) error {
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	return err
}

// seconds rounds up, so that nobody gets less time than was asked for.
func seconds(d time.Duration) int64 { return int64(math.Ceil(max(d, 0).Seconds())) }

// metrics are the kubelet's figures of its runtime.
type metrics struct {
	calls, errors, seconds         observe.Metric // by operation
	sandboxErrors, sandboxDuration observe.Metric // by runtime handler
}

func newMetrics(to observe.To) (*metrics, error) {
	buckets := make([]float64, 14)
	for i := range buckets {
		buckets[i] = .005 * math.Pow(2.5, float64(i))
	}
	i := to.Instruments()
	const op, handler = "operation_type", "runtime_handler"
	m := &metrics{
		calls:         i.Counter("kubelet_runtime_operations_total", "Calls of the container runtime.", op),
		errors:        i.Counter("kubelet_runtime_operations_errors_total", "Calls of the container runtime that failed.", op),
		seconds:       i.Histogram("kubelet_runtime_operations_duration_seconds", "Time a call of the container runtime took.", buckets, op),
		sandboxErrors: i.Counter("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be made.", handler),
		sandboxDuration: i.Histogram("kubelet_run_podsandbox_duration_seconds", "Time it took to make a sandbox.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, handler),
	}
	return m, i.Err
}

func (m *metrics) record(op string, took time.Duration, err error) {
	m.calls.Record(1, op)
	m.seconds.Record(took.Seconds(), op)
	if err != nil {
		m.errors.Record(1, op)
	}
}

func (m *metrics) recordSandbox(handler string, took time.Duration, err error) {
	m.sandboxDuration.Record(took.Seconds(), handler)
	if err != nil {
		m.sandboxErrors.Record(1, handler)
	}
}
