// Command probe asks a server whether it is healthy, as a Kubernetes node would.
//
//	probe [-timeout 1s] [-header 'Host: web.example'] http://10.0.0.5:8080/healthz
//	probe tcp://10.0.0.5:5432
//
// It prints what came of it and exits with 0 when that counts as healthy, 1 when not, and 2 when nobody could be asked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/probe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, problems io.Writer) (code int) {
	f := flag.NewFlagSet("probe", flag.ContinueOnError)
	f.SetOutput(problems)
	f.Usage = func() {
		fmt.Fprintln(problems, "usage: probe [flags] http://HOST[:PORT]/PATH | https://... | tcp://HOST:PORT")
		f.PrintDefaults()
	}
	timeout := f.Duration("timeout", time.Second, "how long the whole check may take")
	header := headers{}
	f.Var(header, "header", "'Name: value' to send along; may be given many times")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case f.NArg() != 1:
		f.Usage()
		return 2
	}
	check, err := checkOf(f.Arg(0), http.Header(header))
	if err != nil {
		fmt.Fprintln(problems, "probe:", err)
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	begun := time.Now()
	res, text, err := check(ctx)
	if err != nil {
		fmt.Fprintln(problems, "probe:", err)
		return 2
	}
	fmt.Fprintf(out, "%v in %v\n", res, time.Since(begun).Round(time.Millisecond))
	if text = strings.TrimSpace(text); text != "" {
		fmt.Fprintln(out, text)
	}
	if !res.OK() {
		return 1
	}
	return 0
}

// checkOf is how a target is asked.
func checkOf(target string, header http.Header) (probe.Check, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	switch {
	case u.Host == "":
	case u.Scheme == "http" || u.Scheme == "https":
		return func(ctx context.Context) (probe.Result, string, error) {
			return probe.HTTP(ctx, probe.HTTPTarget{URL: target, Header: header})
		}, nil
	case u.Scheme == "tcp" && u.Port() != "":
		return func(ctx context.Context) (probe.Result, string, error) { return probe.TCP(ctx, u.Host) }, nil
	}
	return nil, fmt.Errorf("%q is no target: want http://HOST/PATH, https://HOST/PATH or tcp://HOST:PORT", target)
}

// headers is a flag that may be given many times.
type headers http.Header

func (h headers) String() string { return "" }

func (h headers) Set(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" {
		return errors.New("want 'Name: value'")
	}
	http.Header(h).Add(name, strings.TrimSpace(value))
	return nil
}
