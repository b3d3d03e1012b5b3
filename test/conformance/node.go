package conformance

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// NodeSuite describes the node whose agent e2e_node.test judges: specs that look at the node itself, and run on it. All
// fields are required.
type NodeSuite struct {
	Host    string // URL of the API server
	Token   string // of a cluster's administrator
	Name    string // of the node
	Runtime string // endpoint of its container runtime
	PIDFile string // holds the number of the agent's process; kept up to date when a spec restarts it
	Log     string // file that a restarted agent writes to
}

// sudo stands in for the command of that name: who runs specs on a node is root.
const sudo = `#!/bin/sh
exec "$@"
`

// systemctl stands in for systemd: the one unit is the agent.
const systemctl = `#!/bin/bash
pidfile=PIDFILE log=LOG
case "$1" in
list-units)
  echo "kubelet-bed.service loaded active running" ;;
stop|kill|restart)
  pid=$(cat "$pidfile") dir=$(readlink "/proc/$pid/cwd")
  [ -r "/proc/$pid/cmdline" ] && tr '\0' '\n' <"/proc/$pid/cmdline" >"$0.args" && echo "$dir" >"$0.dir"
  kill "$pid" && while kill -0 "$pid"; do sleep 0.05; done 2>/dev/null
  if [ "$1" = restart ]; then
    mapfile -t args <"$0.args"
    cd "$(cat "$0.dir")" || exit
    setsid "${args[@]}" >>"$log" 2>&1 </dev/null &
    echo $! >"$pidfile"
  fi ;;
esac
exit 0
`

// lenient is a system that every machine is. What a node needs, the cluster that is up shows.
const lenient = "os: Linux\n"

// rootfs is where the specs look for the system, as they may run in a container.
const rootfs = "/rootfs"

// prepare writes what e2e_node.test looks for, and makes /rootfs unless it is there.
func (n *NodeSuite) prepare(dir string) (undo func(), err error) {
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"bin/sudo":      sudo,
		"bin/systemctl": strings.NewReplacer("PIDFILE", n.PIDFile, "LOG", n.Log).Replace(systemctl),
		"system.yaml":   lenient,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return nil, err
		}
	}
	if _, err := os.Lstat(rootfs); err == nil {
		return func() {}, nil
	}
	return func() { _ = os.Remove(rootfs) }, os.Symlink("/", rootfs)
}

// arguments are those of ginkgo, and after them those of the specs. Only specs that e2e.test does not have are run.
func (n *NodeSuite) arguments(cfg Config) []string {
	args := []string{
		"--procs=" + strconv.Itoa(cmp.Or(cfg.Procs, 6)),
		"--no-color", "--keep-going",
		"--timeout=" + cmp.Or(cfg.Limit, 3*time.Hour).String(),
		"--focus-file=/e2e_node/",
		"--output-dir=" + cfg.Dir, "--junit-report=junit_node.xml",
	}
	return append(append(args, selection(cfg)...), filepath.Join(cfg.Bin, "e2e_node.test"), "--",
		"--conformance", "--start-services=false", "--prepull-images=false",
		"--bearer-token="+n.Token,
		"--host="+n.Host,
		"--node-name="+n.Name,
		"--container-runtime-endpoint="+n.Runtime,
		"--config-dir="+filepath.Join(cfg.Dir, "config"),
		"--system-spec-file="+filepath.Join(cfg.Dir, "system.yaml"),
		"--dns-domain=cluster.local",
	)
}
