// Hygiene runs the checks that a stranger makes before importing this module. See package hygiene.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/hygiene"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "hygiene:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("hygiene", flag.ContinueOnError)
	flags.SetOutput(out)
	root := flags.String("root", ".", "folder of the checkout")
	notice := flags.Bool("notice", false, "write NOTICE anew, and check nothing")
	flags.Usage = func() {
		fmt.Fprintln(out, "usage: hygiene [flags] [CHECK...]")
		flags.PrintDefaults()
		for _, c := range hygiene.Checks() {
			fmt.Fprintf(out, "  %-9s %s\n", c.Name, c.What)
		}
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	abs, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	r := &hygiene.Repo{Root: abs, Cache: filepath.Dir(bed.BinDir()), Tools: func(ctx context.Context, name string) (string, error) {
		return bed.EnsureTools(ctx, os.Stderr, name)
	}}
	if *notice {
		return hygiene.WriteNotice(ctx, r)
	}
	return hygiene.Run(ctx, r, out, flags.Args()...)
}
