package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Exec checks by a command: exit code 0 is Success, every other Failure. run carries it out and returns soon after ctx
// ends; its error says that there is no exit code. A command that had not ended by the deadline of ctx is a Failure,
// whether run reports that as context.DeadlineExceeded or comes back with an exit code too late.
func Exec(ctx context.Context, run func(context.Context) (code int, out []byte, err error)) (Result, string, error) {
	start, patience := time.Now(), Patience(ctx)
	code, out, err := run(ctx)
	switch {
	case cancelled(ctx):
		return Unknown, "", context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Failure, fmt.Sprintf("command timed out after %v", cmp.Or(patience, time.Since(start).Round(time.Millisecond))), nil
	case err != nil:
		return Unknown, "", err
	case code == 0:
		return Success, text(out), nil
	case len(out) == 0:
		return Failure, fmt.Sprintf("exit code %d", code), nil
	}
	return Failure, text(out), nil
}
