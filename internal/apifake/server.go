package apifake

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// Call is one request.
type Call struct {
	Verb                 string // get, list, watch, create, update, patch or delete
	Group, Resource, Sub string // Sub: the subresource, mostly empty
	Namespace, Name      string
	Query                url.Values
	Body                 []byte
}

// String is like "patch pods/status default/web". A list or watch has its field selector in the end.
func (c Call) String() string {
	s := c.Verb + " " + c.Resource
	if c.Sub != "" {
		s += "/" + c.Sub
	}
	if where := strings.Trim(c.Namespace+"/"+c.Name, "/"); where != "" {
		s += " " + where
	}
	if f := c.Query.Get("fieldSelector"); f != "" {
		s += " " + f
	}
	return s
}

// Answer says how a request is treated other than well.
type Answer struct {
	Delay time.Duration // before anything is done
	Err   error         // an *errors.StatusError; instead of doing it
	Lost  bool          // it is done, but the answer ends after Bytes
	Bytes int
}

// Server is an API server. Make it with New.
type Server struct {
	http *http.Server
	line *line

	mu      sync.Mutex // guards the rest
	store   store
	news    chan struct{} // closed at the next change
	cut     chan struct{} // closed to end all watches
	frozen  int64         // what caches show; 0: everything
	answer  func(Call) *Answer
	calls   []Call
	watches int
	open    int // connections
}

// New starts a server. Close ends it.
func New() *Server {
	s := &Server{line: newLine(), news: make(chan struct{}), cut: make(chan struct{})}
	s.store = newStore()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Hour, ConnState: s.count}
	go s.http.Serve(s.line) //nolint:errcheck // ends with Close
	return s
}

// Bubbles prepares Kubernetes packages for fake time, in a TestMain: they sleep until a moment taken from the true clock after
// they have logged an error.
func Bubbles() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// Close ends all connections, and the server.
func (s *Server) Close() { s.http.Close() }

// Config is how to reach it, by pipes.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://apifake", Dial: s.line.dial}
}

// SetDown makes the server refuse connections and drops those there are, or brings it back.
func (s *Server) SetDown(down bool) { s.line.set(down) }

// CutWatches ends all watches.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Compact forgets history: watches from older resource versions, and those that have not kept up, are told 410 Gone.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.history, s.store.compacted = nil, s.store.version
	s.frozen = 0
}

// Freeze lets watches and cached lists show what is now and nothing later, until it is told to go on.
func (s *Server) Freeze(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = 0
	if on {
		s.frozen = s.store.version
	}
	s.wake()
}

// Answer has f decide about each request; nil from f, or a nil f, treats it well.
func (s *Server) Answer(f func(Call) *Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// Calls are the requests since the last time it was asked, and forgotten with that.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.calls {
		out = append(out, c.String())
	}
	s.calls = nil
	return out
}

// count counts connections.
func (s *Server) count(_ net.Conn, st http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch st {
	case http.StateNew:
		s.open++
	case http.StateClosed, http.StateHijacked:
		s.open--
	case http.StateActive, http.StateIdle:
	}
}

// Connections is how many pipes there are.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Watches is how many watches there are.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// wake tells watches of news. The lock is held.
func (s *Server) wake() {
	close(s.news)
	s.news = make(chan struct{})
}

// line is a listener of pipes.
type line struct {
	calls chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu   sync.Mutex // guards the rest
	down bool
	ends []net.Conn
}

func newLine() *line { return &line{calls: make(chan net.Conn), done: make(chan struct{})} }

func (l *line) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: l.Addr(), Err: syscall.ECONNREFUSED}
	}
	near, far := net.Pipe()
	l.ends = append(l.ends, far)
	l.mu.Unlock()
	select {
	case l.calls <- far:
		return near, nil
	case <-l.done:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: l.Addr(), Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *line) set(down bool) {
	l.mu.Lock()
	l.down = down
	ends := slices.Clone(l.ends)
	l.ends = nil
	l.mu.Unlock()
	if down {
		for _, c := range ends {
			c.Close()
		}
	}
}

// Accept is the server's.
func (l *line) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close is the server's.
func (l *line) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr is the server's.
func (l *line) Addr() net.Addr { return &net.UnixAddr{Name: fmt.Sprintf("apifake %p", l), Net: "pipe"} }
