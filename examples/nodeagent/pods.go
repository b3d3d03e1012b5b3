package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/server"
)

// podsCommand shows the pods of a running agent: once, or with --watch until ctx ends.
func podsCommand(ctx context.Context, args []string, out io.Writer) error {
	c := &client{}
	f, port, watch, interval := podsFlags(c)
	f.SetOutput(out)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("pods takes flags only, not %q", f.Arg(0))
	}
	if err := c.at(*port); err != nil {
		return err
	}
	defer c.close()
	if *watch {
		size := func() (int, int, bool) { return terminalSize(out) }
		return watchPods(ctx, c.rows, max(*interval, 100*time.Millisecond), out, size)
	}
	rows, err := c.rows(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.Join(new(table).lines(rows, time.Now(), 0), "\n"))
	return err
}

func podsFlags(c *client) (f *flag.FlagSet, port *int, watch *bool, interval *time.Duration) {
	f = flag.NewFlagSet("nodeagent pods", flag.ContinueOnError)
	port = c.flags(f)
	watch = f.Bool("watch", false, "go on and show changes")
	f.BoolVar(watch, "w", false, "short for --watch")
	return f, port, watch, f.Duration("interval", time.Second, "time between two looks with --watch")
}

// watchPods shows rows until ctx ends: in a terminal as one picture, else line by line. An agent that does not answer
// is waited for; the rows it gave last stay.
func watchPods(ctx context.Context, look func(context.Context) ([]row, error), every time.Duration, out io.Writer, size func() (width, height int, ok bool)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var picture screen
	var lines ticker
	var rows []row
	for {
		now, err := look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		note := ""
		if err == nil {
			rows = now
		} else {
			note = err.Error() + "; trying again"
		}
		var text string
		if width, height, ok := size(); ok {
			text = picture.picture(rows, note, time.Now(), width, height)
		} else {
			text = lines.news(rows, note, time.Now())
		}
		if _, err := io.WriteString(out, text); err != nil {
			return fmt.Errorf("show pods: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// client asks an agent. Token and certificate are read anew each time they are needed: an agent that starts makes new ones.
type client struct {
	server, root string
	http         *http.Client
}

// flags are those that say where the agent is.
func (c *client) flags(f *flag.FlagSet) (port *int) {
	f.StringVar(&c.root, "root-dir", "/var/lib/nodeagent", "`directory` of the agent's files; its token and certificate are read there")
	f.StringVar(&c.server, "server", "", "`URL` of the agent; empty: https://127.0.0.1 and --port")
	return f.Int("port", 10250, "port of the agent on this machine")
}

// at says where the agent is, once flags are read.
func (c *client) at(port int) error {
	if c.server == "" {
		c.server = fmt.Sprintf("https://127.0.0.1:%d", port)
	}
	if u, err := url.Parse(c.server); err != nil || u.Host == "" || u.Scheme != "https" {
		return fmt.Errorf("--server %q is no https URL", c.server)
	}
	return nil
}

// rows are the pods of the agent.
func (c *client) rows(ctx context.Context) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var list v1.PodList
	if err := c.get(ctx, "/pods", &list); err != nil {
		return nil, err
	}
	var timelines []server.PodTimeline
	if err := c.get(ctx, "/debug/pods?format=json&brief=1", &timelines); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	last := map[types.UID]*observe.Entry{}
	for _, t := range timelines {
		last[t.UID] = t.LastEvent
	}
	return rowsOf(list.Items, last), nil
}

// get reads the answer to one question into v.
func (c *client) get(ctx context.Context, path string, v any) error {
	return c.ask(ctx, http.MethodGet, path, v)
}

// ask reads the answer to a request into v.
func (c *client) ask(ctx context.Context, method, path string, v any) error {
	token, err := os.ReadFile(filepath.Join(c.root, "admin.token"))
	if err != nil {
		return fmt.Errorf("the agent's token cannot be read; does it run with this --root-dir, and are you root? %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.server, "/")+path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	resp, err := c.client().Do(req)
	if err != nil {
		return fmt.Errorf("the agent at %s does not answer: %w", c.server, reason(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 256<<20))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer of %s: %w", c.server, err)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the agent at %s does not know the token in %s: does another one run there?", c.server, c.root)
	case resp.StatusCode == http.StatusNotImplemented:
		return fmt.Errorf("the agent at %s: %s: %w", c.server, path, errors.ErrUnsupported)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("the agent at %s answers %s: %s", c.server, resp.Status, bytes.TrimSpace(body))
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.server, err)
	}
	return nil
}

// reason leaves out the address, which was said already.
func reason(err error) error {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func (c *client) client() *http.Client {
	if c.http == nil {
		c.http = &http.Client{Transport: &http.Transport{TLSClientConfig: c.pin()}}
	}
	return c.http
}

func (c *client) close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// pin trusts the one certificate that the agent has put into its directory, whatever names it is for. Without that file
// the usual authorities decide.
func (c *client) pin() *tls.Config {
	path := filepath.Join(c.root, "pki", "nodeagent.crt")
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // what follows takes its place
		VerifyConnection: func(s tls.ConnectionState) error {
			text, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return verify(s)
			}
			if err != nil {
				return err
			}
			block, _ := pem.Decode(text)
			if block == nil || !bytes.Equal(block.Bytes, s.PeerCertificates[0].Raw) {
				return fmt.Errorf("its certificate is not the one in %s", path)
			}
			return nil
		},
	}
}

// verify is what TLS does by itself.
func verify(s tls.ConnectionState) error {
	o := x509.VerifyOptions{DNSName: s.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(o)
	return err
}
