package member

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a server that says what it hears.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }() // ends with the connection
		}
	}()
	return l.Addr().String()
}

// caller is one end of a wire.
type caller struct {
	net.Conn

	in *bufio.Reader
}

// say writes a line and reads one back, waiting for it no longer than patience.
func (c caller) say(line string, patience time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	return c.in.ReadString('\n')
}

func TestProxy(t *testing.T) {
	p, err := NewProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	const (
		whole  = 30 * time.Second // more than a busy machine takes
		broken = time.Second / 5
	)
	dial := func() caller {
		c, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return caller{c, bufio.NewReader(c)}
	}
	c := dial()
	if got, err := c.say("whole", whole); got != "whole\n" || err != nil {
		t.Fatalf("a whole wire said %q, %v", got, err)
	}

	p.Hang()
	if got, err := c.say("held", broken); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a wire that hangs said %q, %v", got, err)
	}
	p.Heal()
	if got, err := c.say("more", whole); got != "held\n" || err != nil { // what was held comes first
		t.Errorf("a healed wire said %q, %v", got, err)
	}
	if got, err := c.say("most", whole); got != "more\n" || err != nil {
		t.Errorf("a healed wire then said %q, %v", got, err)
	}
	if got, err := c.in.ReadString('\n'); got != "most\n" || err != nil { // nothing is on its way when the wire is cut
		t.Errorf("a healed wire said %q at last, %v", got, err)
	}

	p.Cut()
	if got, err := c.say("gone", broken); err == nil {
		t.Errorf("a cut wire said %q", got)
	}
	if got, err := dial().say("new", broken); err == nil {
		t.Errorf("a cut wire took a connection and said %q", got)
	}
	p.Heal()
	if got, err := dial().say("back", whole); got != "back\n" || err != nil {
		t.Errorf("a healed wire said %q, %v", got, err)
	}
}
