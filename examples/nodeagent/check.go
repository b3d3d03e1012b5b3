package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// finding is what one check found. Only what is not ok has a remedy.
type finding struct {
	level  level
	name   string
	text   string
	remedy string
}

type level uint8

const (
	fine level = iota
	warn       // works, but not all of it
	bad        // the agent, or its pods, will not run
)

func (l level) String() string { return [...]string{"ok", "WARN", "FAIL"}[l] }

func ok(name, format string, args ...any) finding {
	return finding{name: name, text: fmt.Sprintf(format, args...)}
}

func (f finding) String() string {
	s := fmt.Sprintf("%-4s %s: %s", f.level, f.name, f.text)
	if f.remedy != "" {
		s += "\n     remedy: " + f.remedy
	}
	return s
}

// checkCommand tells what is missing on this machine before the agent is started with the same flags, and how to mend
// it. It changes nothing. Its error says that something is missing without which the agent does not work.
func checkCommand(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if o == nil || (err != nil && o.kubelet.StaticPodPath != "") { // without manifests there is still much to look at
		return err
	}
	failed := 0
	for _, f := range checks(ctx, o) {
		if _, err := fmt.Fprintln(out, f); err != nil {
			return err
		}
		if f.level == bad {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("checks failed: %d; mend these first", failed)
	}
	_, err = fmt.Fprintln(out, "this machine is ready")
	return err
}

// checks are all of them, in the order in which one would mend things.
func checks(ctx context.Context, o *options) []finding {
	h := host("/")
	found := []finding{checkUser(os.Geteuid())}
	info, f := checkRuntime(o.kubelet.ContainerRuntimeEndpoint, func() (runtime.Info, error) { return askRuntime(ctx, o.kubelet.ContainerRuntimeEndpoint) })
	found = append(found, f...)
	if info != nil {
		found = append(found, h.checkNetwork(*info), h.checkDriver(*info))
	}
	found = append(found, h.checkCgroups()...)
	found = append(found,
		h.checkIPTables(exec.LookPath),
		h.checkForwarding(),
		checkScore(filepath.Join("/proc", strconv.Itoa(os.Getpid()), "oom_score_adj")),
		checkPort(o.address, o.port, h.portOwner),
		checkWritable("root directory", o.flags.RootDir, "--root-dir"),
		h.checkShared(o.flags.RootDir),
		checkWritable("pod logs", o.kubelet.PodLogsDir, "--pod-logs-dir"),
	)
	if o.containerLogs != "" {
		found = append(found, checkWritable("log links", o.containerLogs, "--container-logs-dir"))
	}
	found = append(found, checkManifests(o.kubelet.StaticPodPath))
	return append(found, checkDisks(statfs, o.flags.RootDir, o.kubelet.PodLogsDir)...)
}

func checkUser(uid int) finding {
	if uid == 0 {
		return ok("user", "root")
	}
	return finding{bad, "user", fmt.Sprintf("user %d may not do what a node agent does", uid), "run the agent, and this command, as root (sudo)"}
}

// askRuntime asks for version and status.
func askRuntime(ctx context.Context, endpoint string) (runtime.Info, error) {
	conn, err := cri.Dial(endpoint)
	if err != nil {
		return runtime.Info{}, err
	}
	defer conn.Close()
	engine, err := cri.New(cri.Config{Runtime: conn, Timeout: 5 * time.Second})
	if err != nil {
		return runtime.Info{}, err
	}
	return engine.Info(ctx)
}

// checkRuntime looks at the socket, and then asks. The info is nil when there was no answer.
func checkRuntime(endpoint string, ask func() (runtime.Info, error)) (*runtime.Info, []finding) {
	const name = "container runtime"
	failed := func(text, remedy string) (*runtime.Info, []finding) { return nil, []finding{{bad, name, text, remedy}} }
	path, isUnix := strings.CutPrefix(endpoint, "unix://")
	if !isUnix {
		return failed(endpoint+" is no unix socket", "give --container-runtime-endpoint as unix:///path/of/the.sock")
	}
	stat, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failed("there is no "+path, "install and start containerd or CRI-O, or say where its socket is with --container-runtime-endpoint")
	case err != nil:
		return failed(err.Error(), "run as root, who may reach the socket")
	case stat.Mode()&fs.ModeSocket == 0:
		return failed(path+" is no socket", "say where the runtime's socket is with --container-runtime-endpoint")
	}
	info, err := ask()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return failed(path+" does not speak CRI v1: "+err.Error(), `take "cri" out of disabled_plugins in /etc/containerd/config.toml and restart containerd (version 1.7 or newer)`)
	case errors.Is(err, runtime.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return failed("nobody answers at "+path+": "+err.Error(), "start the runtime, or look into its log: journalctl -u containerd")
	case err != nil:
		return failed(err.Error(), "look into the runtime's log: journalctl -u containerd")
	}
	if !info.Ready.OK {
		return &info, []finding{{bad, name, fmt.Sprintf("%s %s is not ready: %s", info.Name, info.Version, said(info.Ready)), "look into the runtime's log: journalctl -u containerd"}}
	}
	return &info, []finding{ok(name, "%s %s at %s", info.Name, info.Version, path)}
}

func said(c runtime.Condition) string { return cmp.Or(c.Message, c.Reason, "it does not say why") }

// checkPort tries to take the port, and lets it go.
func checkPort(address string, port int, owner func(port int) string) finding {
	const name = "port"
	if port == 0 {
		return ok(name, "not served (--port=0)")
	}
	at := net.JoinHostPort(address, strconv.Itoa(port))
	l, err := net.Listen("tcp", at)
	switch {
	case err == nil:
		_ = l.Close() // it was only tried
		return ok(name, "%s is free", at)
	case errors.Is(err, syscall.EADDRINUSE):
		return finding{bad, name, fmt.Sprintf("%s is in use by %s", at, cmp.Or(owner(port), "another process")), "stop that one, or give another --port"}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return finding{bad, name, fmt.Sprintf("%s is no address of this machine", address), "give one that is as --address; 127.0.0.1 always works"}
	default:
		return finding{bad, name, err.Error(), "give another --address or --port"}
	}
}

// checkManifests looks at the directory of manifests, or the single one.
func checkManifests(path string) finding {
	const name = "manifests"
	if path == "" {
		return finding{warn, name, "none given", "give --pod-manifest-path, which the agent needs"}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return finding{warn, name, path + " does not exist", "make it (mkdir -p " + path + "); until then there are no pods"}
	case err != nil:
		return finding{bad, name, err.Error(), "let root read it"}
	case !info.IsDir():
		f, err := os.Open(path)
		if err != nil {
			return finding{bad, name, err.Error(), "let root read it"}
		}
		_ = f.Close() // it was only tried
		return ok(name, "the file %s", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return finding{bad, name, err.Error(), "let root read it"}
	}
	files := 0
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			files++
		}
	}
	return ok(name, "%s, files: %d", path, files)
}
