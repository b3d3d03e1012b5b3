package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Config describes a run of specs. Bin, Kubeconfig and Dir are required.
type Config struct {
	Bin        string // directory of ginkgo, e2e.test and kubectl
	Kubeconfig string // of the cluster's administrator
	Dir        string // for the log and reports of this run; it is emptied first

	Focus string        // regular expression of the specs to run; empty: all
	Skip  string        // and of those among them not to run; empty: none
	Procs int           // specs at once; 0 means 6
	Node  *NodeSuite    // run e2e_node.test on this node; nil: run e2e.test
	Limit time.Duration // after this the specs that run are stopped and no other begins; 0 means three hours
	Log   io.Writer     // gets the output of ginkgo too; nil: it is only in Dir
}

// Run runs the specs and returns one row for each, also for those that failed. An error means that they
// could not be run, or that not one was found.
func Run(ctx context.Context, cfg Config) ([]Row, error) {
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(cfg.Dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args, path := arguments(cfg), cfg.Bin
	if cfg.Node != nil {
		undo, err := cfg.Node.prepare(cfg.Dir)
		if err != nil {
			return nil, err
		}
		defer undo()
		args, path = cfg.Node.arguments(cfg), filepath.Join(cfg.Dir, "bin")+":"+path
	}
	cmd := exec.CommandContext(ctx, filepath.Join(cfg.Bin, "ginkgo"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up, and reports what it has
	cmd.WaitDelay = 5 * time.Minute
	cmd.Dir = cfg.Dir
	cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "KUBECONFIG="+cfg.Kubeconfig)
	cmd.Stdout = log
	if cfg.Log != nil {
		cmd.Stdout = io.MultiWriter(log, cfg.Log)
	}
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt in the terminal reaches it through us, once
	ran := cmd.Run()
	rows, err := readReports(cfg.Dir)
	if err != nil {
		return nil, errors.Join(ran, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("run specs: none has run; see %s: %w", log.Name(), cmp.Or(ran, errors.New("no spec matches")))
	}
	return rows, nil
}

// arguments are those of ginkgo, and after them those of the specs.
func arguments(cfg Config) []string {
	args := []string{
		"--procs=" + strconv.Itoa(cmp.Or(cfg.Procs, 6)),
		"--no-color",
		"--keep-going",
		"--timeout=" + cmp.Or(cfg.Limit, 3*time.Hour).String(),
	}
	return append(append(args, selection(cfg)...), filepath.Join(cfg.Bin, "e2e.test"), "--",
		"-kubeconfig="+cfg.Kubeconfig,
		"-provider=skeleton",
		"-report-dir="+cfg.Dir,
		"-disable-log-dump",
		"-allowed-not-ready-nodes=-1",
		"-dns-domain=cluster.local",
		"-num-nodes=1",
	)
}

// selection are the arguments that say which specs are run.
func selection(cfg Config) (args []string) {
	if cfg.Focus != "" {
		args = append(args, "--focus="+cfg.Focus)
	}
	if cfg.Skip != "" {
		args = append(args, "--skip="+cfg.Skip)
	}
	return args
}
