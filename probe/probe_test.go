package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/probe"
)

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dead := deadAddr(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		addr string
		want probe.Result
		text string // part of it
		err  error
	}{
		{"a listener", t.Context(), l.Addr().String(), probe.Success, "", nil},
		{"nobody listens", t.Context(), dead, probe.Failure, dead, nil},
		{"the deadline passed", late, l.Addr().String(), probe.Failure, "timeout", nil},
		{"no address", t.Context(), "nonsense", probe.Failure, "nonsense", nil},
		{"the caller cancelled", gone, l.Addr().String(), probe.Unknown, "", context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, text, err := probe.TCP(c.ctx, c.addr)
			if res != c.want || !strings.Contains(text, c.text) || !errors.Is(err, c.err) {
				t.Errorf("got %v, %q, %v; want %v, %q, %v", res, text, err, c.want, c.text, c.err)
			}
		})
	}
}

func TestExec(t *testing.T) {
	broken := errors.New("no such container")
	long := strings.Repeat("x", 20000)
	for _, c := range []struct {
		name string
		code int
		out  string
		err  error
		want probe.Result
		text string
	}{
		{"exit 0 is success", 0, "fine", nil, probe.Success, "fine"},
		{"any other exit code is a failure with its output", 2, "sad", nil, probe.Failure, "sad"},
		{"a failure without output shows the code", 3, "", nil, probe.Failure, "exit code 3"},
		{"no exit code is no answer", 0, "", broken, probe.Unknown, ""},
		{"a timeout the runtime reports is a failure (c031)", 0, "", fmt.Errorf("exec: %w", context.DeadlineExceeded), probe.Failure, "command timed out after 0s"},
		{"10 KiB of output are kept", 0, long, nil, probe.Success, long[:10240]},
		{"output that is no text is made one", 1, "\xff", nil, probe.Failure, "\uFFFD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := func(context.Context) (int, []byte, error) { return c.code, []byte(c.out), c.err }
				res, text, err := probe.Exec(t.Context(), run)
				if res != c.want || text != c.text || (err != nil) != (c.want == probe.Unknown) {
					t.Errorf("got %v, %q, %v", res, text, err)
				}
			})
		})
	}
}

// Case c031: however a slow command comes back, it is a failure that says timeout.
func TestCase_c031_SlowCommandFails(t *testing.T) {
	for name, run := range map[string]func(context.Context) (int, []byte, error){
		"hangs until the deadline": func(ctx context.Context) (int, []byte, error) { <-ctx.Done(); return 0, nil, ctx.Err() },
		"exit 0, but too late":     func(context.Context) (int, []byte, error) { time.Sleep(10 * time.Second); return 0, nil, nil },
		"killed, exit 137":         func(ctx context.Context) (int, []byte, error) { <-ctx.Done(); return 137, nil, nil },
		"another error by then":    func(ctx context.Context) (int, []byte, error) { <-ctx.Done(); return 0, nil, errors.New("eof") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if res, text, err := probe.Exec(ctx, run); res != probe.Failure || err != nil || !strings.Contains(text, "timed out") {
					t.Errorf("got %v, %q, %v", res, text, err)
				}
			})
		})
	}
}

func TestExecCancelledIsNoAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	run := func(context.Context) (int, []byte, error) { cancel(); return 1, nil, nil }
	if res, _, err := probe.Exec(ctx, run); res != probe.Unknown || !errors.Is(err, context.Canceled) {
		t.Error(res, err)
	}
}
