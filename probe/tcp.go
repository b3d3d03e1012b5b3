package probe

import "context"

// TCP checks that addr ("10.0.0.5:80", "[fd00::5]:80") takes connections. It sends nothing. What is no address
// at all is a Failure too, as for the kubelet.
func TCP(ctx context.Context, addr string) (Result, string, error) {
	conn, err := Dialer().DialContext(ctx, "tcp", addr)
	switch {
	case err != nil && cancelled(ctx):
		return Unknown, "", context.Cause(ctx)
	case err != nil:
		return Failure, err.Error(), nil //nolint:nilerr // no connection is an answer
	}
	_ = conn.Close() // the answer is known
	return Success, "", nil
}
