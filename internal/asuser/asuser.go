// Package asuser is for tests of programs: it builds one, runs it as an ordinary user does, and compares what it prints.
package asuser

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// nobody is who runs the program when the tests run as root.
const nobody = 65534

// Program is a built program with a directory that its user may write to.
type Program struct {
	t    *testing.T
	path string

	Dir string // the user's own; it lies in a directory of which everybody may read, beside the program
	UID int    // who runs it
}

// Build builds the program in the test's own folder.
func Build(t *testing.T) *Program {
	t.Helper()
	dir, err := os.MkdirTemp("", "asuser") //nolint:usetesting // t.TempDir lets no other user in
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &Program{t: t, path: filepath.Join(dir, "program"), Dir: filepath.Join(dir, "own"), UID: os.Geteuid()}
	if p.UID == 0 {
		p.UID = nobody
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", p.path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	err = os.Mkdir(p.Dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(p.Dir, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Manifests copies manifests to where the user can read them, with words replaced, and returns the directory.
func (p *Program) Manifests(from string, replace ...string) string {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil || len(files) == 0 {
		p.t.Fatalf("manifests in %s: %q, %v", from, files, err)
	}
	to := filepath.Join(filepath.Dir(p.Dir), "manifests")
	if err := os.Mkdir(to, 0o755); err != nil {
		p.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(f)), []byte(strings.NewReplacer(replace...).Replace(string(b))), 0o644)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return to
}

// Command is the program, not started yet, as its user.
func (p *Program) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = as(nobody)
	}
	return cmd
}

// Running is a program at work.
type Running struct {
	*Program
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex // guards lines
	lines []string
}

// Start starts the program. Each line it prints goes through clean, nil for as it is.
func (p *Program) Start(clean func(string) string, args ...string) *Running {
	p.t.Helper()
	r := &Running{Program: p, cmd: p.Command(p.t.Context(), args...), done: make(chan struct{})}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	go func() { // ends with the program
		defer close(r.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			line := s.Text()
			if clean != nil {
				line = clean(line)
			}
			r.mu.Lock()
			r.lines = append(r.lines, line)
			r.mu.Unlock()
		}
	}()
	return r
}

// Prints waits until all these lines were printed, those with the same first word in this order; others may come between.
func (r *Running) Prints(want ...string) {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		r.mu.Lock()
		got := slices.Clone(r.lines)
		r.mu.Unlock()
		missing := Missing(got, want)
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("not printed: %q\nbut\n%s", missing, strings.Join(got, "\n"))
		}
	}
}

// Missing are the lines of want that are not in got, or not in their order among those with the same first word.
func Missing(got, want []string) (out []string) {
	next := map[string]int{} // by first word, where to look
	for _, w := range want {
		first, _, _ := strings.Cut(w, " ")
		i := slices.Index(got[next[first]:], w)
		if i < 0 {
			out = append(out, w)
			continue
		}
		next[first] += i + 1
	}
	return out
}

// Interrupt is Ctrl-C. It waits for the program, which must end well.
func (r *Running) Interrupt() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		r.t.Fatal(err)
	}
	<-r.done
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("after Ctrl-C: %v", err)
	}
}

// Kill ends the program as nothing can be done against, and waits for it.
func (r *Running) Kill() {
	r.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	<-r.done
	_ = r.cmd.Wait() // it was killed
}

// Ask asks a server on a unix socket. Any answer but 200 fails the test.
func (p *Program) Ask(socket, method, path string) (body string, header http.Header) {
	p.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://node"+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s %v\n%s", path, resp.Status, err, b)
	}
	return string(b), resp.Header
}

// FreePort is a TCP port of 127.0.0.1 that nobody listens on, outside the range that outgoing connections take theirs from:
// it must still be free for whoever is to listen there.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		port := 20000 + rand.IntN(10000)
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	tb.Fatal("no free port was found")
	return 0
}
