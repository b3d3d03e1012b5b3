package stream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// linger is how long one side may go on after the other one has ended: long enough to take the last bytes, and a side
// that never ends does not hold the session for ever.
const linger = 10 * time.Second

// lingerer gives a connection to the client that ends soon after the engine has.
type lingerer struct{ http.ResponseWriter }

func (l lingerer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(l.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return clientSide{conn}, rw, nil
}

func (l lingerer) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// clientSide is the connection to the client.
type clientSide struct{ net.Conn }

// CloseWrite is called when the engine has nothing more to say.
func (c clientSide) CloseWrite() error {
	if err := c.SetReadDeadline(time.Now().Add(linger)); err != nil {
		return err
	}
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// engineSide is the connection to the engine.
type engineSide struct{ io.ReadWriteCloser }

// CloseWrite is called when the client has nothing more to say.
func (e engineSide) CloseWrite() error {
	time.AfterFunc(linger, func() { _ = e.Close() }) // closing twice does no harm
	if h, ok := e.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return e.Close()
}
