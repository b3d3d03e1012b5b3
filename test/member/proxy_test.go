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

// say writes a line and reads one back.
func say(c net.Conn, line string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(time.Second / 5)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func TestProxy(t *testing.T) {
	p, err := NewProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial()
	if got, err := say(c, "whole"); got != "whole\n" || err != nil {
		t.Fatalf("a whole wire said %q, %v", got, err)
	}

	p.Hang()
	if got, err := say(c, "held"); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a wire that hangs said %q, %v", got, err)
	}
	p.Heal()
	if got, err := say(c, "more"); got != "held\n" || err != nil { // what was held comes first
		t.Errorf("a healed wire said %q, %v", got, err)
	}

	p.Cut()
	if got, err := say(c, "gone"); err == nil {
		t.Errorf("a cut wire said %q", got)
	}
	if got, err := say(dial(), "new"); err == nil {
		t.Errorf("a cut wire took a connection and said %q", got)
	}
	p.Heal()
	if got, err := say(dial(), "back"); got != "back\n" || err != nil {
		t.Errorf("a healed wire said %q, %v", got, err)
	}
}
