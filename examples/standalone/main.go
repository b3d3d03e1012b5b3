// Command standalone keeps the pods of a directory running as processes of this machine: no root, no container runtime, no
// images, no cluster. It is a small assembly of the packages, and a way to try them:
//
//	go run ./examples/standalone examples/standalone/manifests
//
// It prints a line whenever a pod changes. Ctrl-C ends it and leaves the pods; started again it adopts them. What the
// kubelet serves under /pods and /containerLogs, and commands in containers (/run), it serves on a socket that only its
// user can open:
//
//	curl --unix-socket $ROOT/api http://node/pods
//	curl --unix-socket $ROOT/api 'http://node/containerLogs/default/web-node/web?follow=true'
//	curl --unix-socket $ROOT/api -d '' 'http://node/run/default/web-node/web?cmd=uname&cmd=-a'
//
// assemble.go says which source, sink and engine it has; syncloop/agent joins them.
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

	"github.com/kubeletkit/kubeletkit/runtime/process"
)

func main() {
	if process.Shim() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "standalone:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left to be done
	}
}

// options are what the flags say.
type options struct {
	root, manifests string
	stop, verbose   bool
}

func command(ctx context.Context, args []string, out, errOut io.Writer) error {
	if len(args) > 0 && args[0] == "web" {
		return web(ctx, args[1:], out)
	}
	var o options
	f := flag.NewFlagSet("standalone", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.Usage = func() {
		fmt.Fprintf(errOut, "usage: standalone [flags] DIRECTORY    keep the pods of a directory running\n       standalone [flags] -stop        end all of them\n")
		f.PrintDefaults()
	}
	f.StringVar(&o.root, "root", filepath.Join(os.TempDir(), fmt.Sprint("kubeletkit-standalone-", os.Geteuid())), "state and logs of pods")
	f.BoolVar(&o.stop, "stop", false, "end all pods, remove what is left of them, and leave")
	f.BoolVar(&o.verbose, "v", false, "log all that the parts do, not only what goes wrong")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 && !o.stop || f.NArg() != 0 && o.stop {
		f.Usage()
		return errors.New("give one directory with manifests, or -stop and none")
	}
	var err error
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	if o.manifests, err = filepath.Abs(f.Arg(0)); err != nil {
		return err
	}
	if err := ownDirectory(o.root); err != nil {
		return err
	}
	if o.stop {
		return end(ctx, &o, out)
	}
	return run(ctx, &o, out, errOut)
}

// ownDirectory makes a directory that nobody else can look into, and refuses one that somebody else has put there.
func ownDirectory(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make -root: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at -root: %w", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("-root %s is not a directory of this user", path)
	}
	return os.Chmod(path, 0o700)
}

// install puts this program where containers find it by name, and where it stays when `go run` has removed its own.
func install(bin string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	to, err := os.CreateTemp(bin, ".tmp-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		os.Remove(to.Name())
		return err
	}
	return os.Rename(to.Name(), filepath.Join(bin, "standalone"))
}
