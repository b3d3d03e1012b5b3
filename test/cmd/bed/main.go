// Bed runs a private containerd for tests and the demo. See package bed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/kubeletkit/kubeletkit/test/bed"
)

const usage = `usage: bed COMMAND [--dir D] [ARG...]

  tools [NAME...]  build the tools (default: containerd, runc, crictl) into the user's cache
  up               install and build what is missing, start containerd, import the images
  down             remove all pods and stop containerd; images stay
  stop, start      stop containerd under its pods; start it again
  clean            remove everything, with the directory
  images           build the images and import them into a running bed
  with CMD...      make a bed for one command, whose tests find it by KUBELETKIT_BED and KUBELETKIT_CRI,
                   and clean it afterwards; without root run the command without one
  env              print the lines that make crictl talk to this bed, for eval in a shell
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.Contains(args[0], "help") {
		fmt.Print(usage)
		return nil
	}
	flags := flag.NewFlagSet("bed", flag.ContinueOnError)
	dir := flags.String("dir", ".run/bed", "directory of the bed")
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	b, err := bed.Open(*dir)
	if err != nil {
		return err
	}
	b.Log = os.Stderr
	switch args[0] {
	case "with":
		return with(ctx, flags.Args())
	case "tools":
		return tools(ctx, flags.Args())
	case "up":
		return b.Up(ctx)
	case "down":
		return b.Down(ctx)
	case "stop":
		return b.Stop(ctx)
	case "start":
		return b.Start(ctx)
	case "clean":
		return b.Clean(ctx)
	case "images":
		return b.BuildImages(ctx)
	case "env":
		for _, line := range b.Env() {
			name, value, _ := strings.Cut(line, "=")
			fmt.Printf("export %s='%s'\n", name, value)
		}
		return nil
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}

// with runs a command beside a bed made for it alone.
func with(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return errors.New("with: which command?")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "bed: not root: tests that need a container runtime are skipped")
		return cmd.Run()
	}
	dir, err := os.MkdirTemp("", "kubeletkit-bed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := bed.Open(dir)
	if err != nil {
		return err
	}
	b.Log = os.Stderr
	err = b.Up(ctx)
	if err == nil {
		cmd.Env = append(append(os.Environ(), b.Env()...), "KUBELETKIT_BED="+dir, "KUBELETKIT_CRI="+b.Endpoint())
		err = cmd.Run()
	}
	return errors.Join(err, b.Clean(context.WithoutCancel(ctx))) // also after an interrupt
}

func tools(ctx context.Context, names []string) error {
	if len(names) == 0 {
		names = bed.RuntimeTools()
	}
	_, err := bed.EnsureTools(ctx, os.Stderr, names...)
	return err
}
