package member

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// A Proxy is the wire between an agent and the API server. It can be cut and it can hang. Its methods are safe for
// concurrent use.
type Proxy struct {
	to       string
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex // guards what follows
	cut    bool
	hangs  chan struct{} // closed when bytes flow; nil: they do
	conns  map[net.Conn]bool
	closed bool
}

// NewProxy listens on a free port of loopback and passes connections on to an address.
func NewProxy(to string) (*Proxy, error) { return ListenProxy("127.0.0.1:0", to) }

// ListenProxy listens on an address and passes connections on to another.
func ListenProxy(on, to string) (*Proxy, error) {
	l, err := net.Listen("tcp", on)
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy: %w", err)
	}
	p := &Proxy{to: to, listener: l, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Address is where it listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut ends all connections, and each new one at once, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.resume()
	p.endAll()
}

// Hang lets no byte through in either direction until Heal or Cut, and accepts connections all the same.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	if p.hangs == nil {
		p.hangs = make(chan struct{})
	}
}

// Heal is the end of Cut and Hang.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	p.resume()
}

// Close ends everything.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed, p.cut = true, true
	p.resume()
	p.endAll()
	p.mu.Unlock()
	p.listener.Close()
	p.wg.Wait()
}

func (p *Proxy) resume() {
	if p.hangs != nil {
		close(p.hangs)
		p.hangs = nil
	}
}

func (p *Proxy) endAll() {
	for c := range p.conns {
		c.Close()
	}
}

// keep takes a connection into the book; not when the wire is cut.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // it is closed
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(in net.Conn) {
	if !p.keep(in) {
		return
	}
	defer p.drop(in)
	out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.to)
	if err != nil || !p.keep(out) {
		return
	}
	defer p.drop(out)
	var wg sync.WaitGroup
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			p.pass(pair[0], pair[1])
			in.Close() // one half alone is of no use here
			out.Close()
		})
	}
	wg.Wait()
}

func (p *Proxy) pass(from io.Reader, to io.Writer) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		hangs := p.hangs
		p.mu.Unlock()
		if hangs != nil {
			<-hangs
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
