package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Environment of the shim: the directory of its container, and that it is the one to stay.
const (
	shimDir  = "KUBELETKIT_SHIM"
	shimStay = "KUBELETKIT_SHIM_STAYS"
)

// readyFD is where a shim says how the start went: nothing, or the error.
const readyFD = 3

// Shim is called first thing in main. In a program that was started as a container's shim it does the shim's work and
// returns true: main then returns. Everywhere else it returns false at once.
func Shim() bool {
	dir := os.Getenv(shimDir)
	if dir == "" {
		return false
	}
	syscall.CloseOnExec(readyFD)
	ready := os.NewFile(readyFD, "ready")
	var err error
	if os.Getenv(shimStay) == "" {
		// The agent waits for this one and is left with no child; the next one becomes a child of init.
		err = spawn(context.Background(), ownProgram, dir, true, ready)
	} else {
		err = keepContainer(dir, ready)
	}
	if err != nil {
		_, _ = ready.WriteString(err.Error()) // an agent that is gone asks for the state later
	}
	return true
}

// spawn starts a shim, and waits for it unless it is the one to stay.
func spawn(ctx context.Context, program, dir string, stays bool, ready *os.File) error {
	cmd := exec.CommandContext(ctx, program)
	cmd.Args = []string{"kubeletkit-shim", filepath.Base(dir)}
	cmd.Dir = "/"
	cmd.Env = []string{shimDir + "=" + dir}
	cmd.ExtraFiles = []*os.File{ready}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if stays {
		cmd.Env = append(cmd.Env, shimStay+"=1")
		return cmd.Start()
	}
	return cmd.Run()
}

// launch has a shim start a container and waits until it did.
func (e *Engine) launch(ctx context.Context, c *containerRecord) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	e.starting(c.ID, true)
	defer e.starting(c.ID, false)
	noted := writeOnce(e.path("containers", c.ID, launchFile), launch{e.boot, time.Now()})
	if noted != nil && !errors.Is(noted, fs.ErrExist) {
		w.Close()
		return fmt.Errorf("note its launch: %w", noted)
	}
	err = e.handOver(ctx, c.ID, r, w)
	if err != nil && noted == nil {
		e.withdraw(c.ID, r)
	}
	return err
}

// handOver gives a container to a shim, and hears from it how the start went.
func (e *Engine) handOver(ctx context.Context, id string, r, w *os.File) error {
	patient, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err := spawn(patient, e.cfg.Shim, e.path("containers", id), false, w)
	w.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("start its shim (a program calls process.Shim first thing in main): %w", err)
	}
	defer context.AfterFunc(patient, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })()
	said, err := io.ReadAll(r)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("hear from its shim: %w", err)
	case len(said) > 0:
		return errors.New(string(said))
	}
	if l, err := e.life(ctx, id); err != nil || l.started.At.IsZero() {
		return errors.Join(errors.New("its shim ended without a word"), err)
	}
	return nil
}

// withdraw takes back the note of a launch of which nothing can come any more, so that nobody waits for it: of those that
// could have become the container's shim none is left to hold the pipe, and none has signed.
func (e *Engine) withdraw(id string, r *os.File) {
	_ = r.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // programs that start just now may hold it so long, too
	if _, err := io.Copy(io.Discard, r); err != nil {
		return
	}
	if l, err := e.read(id); err == nil && l.state == runtime.Created && l.shim == (ident{}) {
		os.Remove(e.path("containers", id, launchFile))
	}
}

// starting notes that this engine starts a container, or no longer does.
func (e *Engine) starting(id string, now bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now {
		e.starts[id] = true
	} else {
		delete(e.starts, id)
	}
}

// shim keeps one container.
type shim struct {
	containerRecord

	dir string
	log *logFile

	mu   sync.Mutex // guards main
	main int        // pid of the container's first process; 0 before its start and after its end
}

// keepContainer starts a container, and returns when it has ended and its end is noted.
func keepContainer(dir string, ready *os.File) error {
	// The kernel kills the container when the thread that started it ends: it is this one, to the end.
	goruntime.LockOSThread()
	asked := make(chan os.Signal, 64)
	// Those that only a terminal sends are taken and let fall: ignored ones the container would inherit.
	signal.Notify(asked, askSignal, killSignal, reopenSignal, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	self, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	// What a container leaves behind becomes a child of its shim.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of the container: %w", err)
	}
	s := &shim{dir: dir}
	if err := writeOnce(s.file(shimFile), self); errors.Is(err, fs.ErrExist) {
		return errors.New("it was started before, or is being removed")
	} else if err != nil {
		return err
	}
	end := exit{Code: 128, Reason: "StartError"}
	if err = s.start(); err == nil {
		ready.Close()
		go s.obey(asked)
		end = s.wait()
	} else {
		end.At, end.Message = time.Now(), err.Error()
	}
	b, _ := json.Marshal(end) // cannot fail
	if e := writeFile(s.file(exitFile), b); e != nil {
		err = errors.Join(err, e)
	}
	changed(filepath.Dir(filepath.Dir(dir)), filepath.Base(dir))
	return err
}

func (s *shim) file(name string) string { return filepath.Join(s.dir, name) }

// start starts the container's first process.
func (s *shim) start() error {
	if ok, err := readFile(s.file(configFile), &s.containerRecord); err != nil || !ok {
		return errors.Join(errors.New("what it was made from cannot be read"), err)
	}
	// An agent that stops the sandbox marks it first and looks for shims then; a shim can be found before it looks here.
	root := filepath.Dir(filepath.Dir(s.dir))
	if _, err := os.Stat(filepath.Join(root, "sandboxes", s.Sandbox, stoppedFile)); err == nil {
		return errors.New("its sandbox was stopped")
	}
	var err error
	if s.log, err = openLog(s.LogPath); err != nil {
		return fmt.Errorf("open its log: %w", err)
	}
	program, err := lookPath(s.Command[0], s.Dir, s.Env)
	if err != nil {
		return err
	}
	input, err := stdin(s.Config.Stdin)
	if err != nil {
		return err
	}
	defer input.Close()
	out, errOut, err := s.log.pipes()
	if err != nil {
		return err
	}
	defer out.Close()
	defer errOut.Close()
	if s.Config.Security.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("give up new privileges: %w", err)
		}
	}
	p, err := os.StartProcess(program, s.Command, &os.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []*os.File{input, out, errOut},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: credential(&s.Config)},
	})
	if err != nil {
		return err
	}
	if score := s.Config.Resources.OOMScoreAdj; score != 0 { // to be spared more than the agent is not given to everybody
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.Pid), strconv.AppendInt(nil, score, 10), 0)
	}
	return s.begun(p)
}

// begun notes that the first process runs.
func (s *shim) begun(p *os.Process) error {
	id, err := identify(p.Pid)
	if err == nil {
		err = writeOnce(s.file(startedFile), started{Process: id, At: time.Now()})
	}
	if err != nil { // nobody could tell that it runs
		_ = p.Kill()
		_, _ = p.Wait()
		return err
	}
	s.mu.Lock()
	s.main = p.Pid
	s.mu.Unlock()
	changed(filepath.Dir(filepath.Dir(s.dir)), s.ID)
	return nil
}

// obey does what the agent asks for.
func (s *shim) obey(asked <-chan os.Signal) {
	stop, err := signalNamed(s.Config.StopSignal)
	if err != nil {
		stop = syscall.SIGTERM
	}
	for sig := range asked {
		switch sig {
		case askSignal:
			s.signal(stop)
		case killSignal:
			s.signal(syscall.SIGKILL)
		case reopenSignal:
			_ = s.log.reopen() // without a new file it writes on into the old one
		}
	}
}

// signal sends a signal to the group of the first process as long as that has not been waited for.
func (s *shim) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.main != 0 {
		_ = syscall.Kill(-s.main, sig) // nobody there is what was asked for
	}
}

// wait returns when the first process has ended, all it left behind is gone, and the log is written.
func (s *shim) wait() exit {
	var end exit
	for end.At.IsZero() {
		// Looks without taking: the pid stays ours until signal cannot use it any more.
		if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return exit{At: time.Now(), Code: 137, Reason: "Error", Message: fmt.Sprintf("wait for it: %v", err)}
		}
		end = s.reap()
	}
	killAll(s.ID, os.Getpid(), func() { s.reap() })
	s.log.drain(2 * time.Second)
	return end
}

// reap takes all children that have ended, and says how the first process did if it is among them.
func (s *shim) reap() (end exit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return end
		}
		if pid == s.main {
			s.main = 0
			end = exitOf(status)
		}
	}
}

func exitOf(status syscall.WaitStatus) exit {
	end := exit{At: time.Now(), Code: int32(status.ExitStatus()), Reason: "Completed"}
	if status.Signaled() {
		end.Code = 128 + int32(status.Signal())
	}
	if end.Code != 0 {
		end.Reason = "Error"
	}
	return end
}
