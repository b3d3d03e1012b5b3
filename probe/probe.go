package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Result of one check.
type Result uint8

const (
	Unknown Result = iota // there is no answer
	Success
	Warning // counts as success, and someone should look at it
	Failure
)

func (r Result) String() string {
	return [...]string{"unknown", "success", "warning", "failure"}[min(r, Failure)]
}

// OK says that a result counts as healthy.
func (r Result) OK() bool { return r == Success || r == Warning }

// Check is one way to ask. The text says more about the result. With an error the result is Unknown and must not count.
type Check func(ctx context.Context) (Result, string, error)

// Patience is how long a check that begins now may take, for texts: rounded, so that a probe that fails in one way is told in
// one way. 0: there is no deadline.
func Patience(ctx context.Context) time.Duration {
	until, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(until)
	if left > time.Second/2 {
		return left.Round(time.Second / 10)
	}
	return left.Round(time.Millisecond)
}

const limit = 10 << 10 // bytes of an answer that are looked at

// text makes an answer presentable: what is longer than the limit is cut, what is no UTF-8 replaced.
func text(b []byte) string { return strings.ToValidUTF8(string(b[:min(len(b), limit)]), "\uFFFD") }

// textf is a text about what a target did, which may quote it.
func textf(format string, args ...any) string { return text(fmt.Appendf(nil, format, args...)) }

// cancelled says that the caller has lost interest. A deadline that passed is no loss of interest but an answer.
func cancelled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
