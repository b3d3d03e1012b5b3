package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// proc is a process that is measured.
type proc struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has
}

// start starts a program whose output is added to a file.
func start(log, program string, args ...string) (*proc, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &proc{cmd: exec.Command(program, args...), log: log, ended: make(chan struct{})} //nolint:noctx // stop ends it
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its state
		close(p.ended)
	}()
	return p, nil
}

// stop ends it with a signal, after ten seconds without grace, and returns when it has ended.
func (p *proc) stop(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// runs is an error when it has ended.
func (p *proc) runs() error {
	select {
	case <-p.ended:
		log, _ := os.ReadFile(p.log) // the message is good without it too
		log = bytes.TrimSpace(log)
		return fmt.Errorf("%s has ended: %s: %s", p.cmd.Path, p.cmd.ProcessState, log[bytes.LastIndexByte(log, '\n')+1:])
	default:
		return nil
	}
}

func (p *proc) usage() (usage, error) { return usageOf(p.cmd.Process.Pid) }

// usage is what a process has used.
type usage struct {
	cpu time.Duration // since it began
	rss float64       // now, in megabytes
}

// usageOf asks the kernel.
func usageOf(pid int) (usage, error) {
	cpu, rss, err := process.Usage(pid)
	return usage{cpu, float64(rss) / 1e6}, err
}
