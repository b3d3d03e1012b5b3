package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/images"
	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// ErrNotRoot says that this user may not run containers.
var ErrNotRoot = errors.New("containerd needs root")

// A Bed is a private containerd in a directory.
type Bed struct {
	// Log gets a line for each thing that takes time; nil: nothing is said.
	Log io.Writer

	dir string // absolute, no symbolic links at its end
}

// Open names the bed in dir, which need not exist. It does nothing else.
func Open(dir string) (*Bed, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open bed: %w", err)
	}
	if len(abs) > maxDir {
		return nil, fmt.Errorf("open bed: the path %s is too long for a socket in it, at most %d bytes", abs, maxDir)
	}
	return &Bed{dir: abs}, nil
}

// maxDir leaves room for "/containerd.sock.ttrpc" in the 107 bytes of a socket's path.
const maxDir = 80

// Dir is the directory of the bed.
func (b *Bed) Dir() string { return b.dir }

// Endpoint is the address of the CRI, as crictl and the agent take it.
func (b *Bed) Endpoint() string { return "unix://" + b.path("containerd.sock") }

func (b *Bed) path(elem ...string) string { return filepath.Join(append([]string{b.dir}, elem...)...) }

func (b *Bed) say(format string, args ...any) {
	if b.Log != nil {
		fmt.Fprintf(b.Log, "bed: "+format+"\n", args...)
	}
}

// Up brings the bed to life: it installs missing Debian packages, builds missing tools, starts containerd
// unless it runs, imports the images of package images, and tries a sandbox once in a bed's life. On a bed
// that is up it changes nothing and takes about a second.
func (b *Bed) Up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	if err := EnsurePackages(ctx, b.Log); err != nil {
		return err
	}
	if _, err := EnsureTools(ctx, b.Log, RuntimeTools()...); err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return fmt.Errorf("make bed: %w", err)
	}
	unlock, err := lock(b.path("lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := enableForwarding(); err != nil {
		return err
	}
	if err := b.Start(ctx); err != nil {
		return err
	}
	if err := b.BuildImages(ctx); err != nil {
		return err
	}
	return b.trySandbox(ctx)
}

// BuildImages builds the images of package images and imports them into the running containerd.
func (b *Bed) BuildImages(ctx context.Context) error {
	root, err := testModule()
	if err != nil {
		return err
	}
	built, err := images.Build(ctx, root)
	if err != nil {
		return err
	}
	return b.ImportImages(ctx, built...)
}

// Start starts containerd unless it runs, and returns when it answers.
func (b *Bed) Start(ctx context.Context) error {
	if b.running() != 0 {
		return b.Answers(ctx)
	}
	s, err := b.load(ctx)
	if err != nil {
		return err
	}
	if err := b.writeConfig(s); err != nil {
		return err
	}
	// The shell ends at once and leaves containerd to init, in a session of its own: nobody here must wait
	// for it, and no terminal can interrupt it.
	script := `setsid containerd --config "$0" >>"$1" 2>&1 </dev/null & echo $! >"$2"`
	cmd := exec.CommandContext(ctx, "sh", "-c", script, b.path("containerd.toml"), b.path("containerd.log"), b.path("containerd.pid"))
	cmd.Env = environ()
	cmd.Dir = b.dir
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	if err := b.Answers(ctx); err != nil {
		return fmt.Errorf("start containerd: %w; see %s", err, b.path("containerd.log"))
	}
	return nil
}

// Answers waits up to two minutes until the CRI answers and says that it and its network are ready.
func (b *Bed) Answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	begun := time.Now()
	for {
		err := b.ready(ctx)
		if err == nil {
			return nil
		}
		if b.running() == 0 && time.Since(begun) > 10*time.Second { // until then it may still be a shell
			return errors.Join(errors.New("containerd has ended"), err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *Bed) ready(ctx context.Context) error {
	if _, err := os.Stat(b.path("containerd.sock")); err != nil {
		return err // crictl would wait for it, and longer than we want
	}
	out, err := b.crictl(ctx, "info", "-o", "go-template", "--template", "{{range .status.conditions}}{{.type}}={{.status}} {{end}}")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "RuntimeReady=true") || !strings.Contains(out, "NetworkReady=true") {
		return fmt.Errorf("containerd is not ready: %s", strings.TrimSpace(out))
	}
	return nil
}

// Stop ends containerd, politely, and returns when it has ended. Pods run on.
func (b *Bed) Stop(ctx context.Context) error { return b.end(ctx, syscall.SIGTERM) }

// Kill ends containerd as a crash would, and returns when it has ended. Pods run on.
func (b *Bed) Kill(ctx context.Context) error { return b.end(ctx, syscall.SIGKILL) }

func (b *Bed) end(ctx context.Context, sig syscall.Signal) error {
	pid := b.running()
	if pid == 0 {
		return nil
	}
	if err := process.End(ctx, pid, b.isContainerd, sig); err != nil {
		return fmt.Errorf("stop containerd: %w", err)
	}
	return nil
}

// Down removes all pods and stops containerd. Images and directory stay, so the next Up is quick.
func (b *Bed) Down(ctx context.Context) error {
	if b.running() == 0 {
		return nil
	}
	return errors.Join(b.RemovePods(ctx), b.Stop(ctx))
}

// ImportImages puts images into containerd, where the CRI finds them under their names. Those that are
// there with the same content are left alone.
func (b *Bed) ImportImages(ctx context.Context, archives ...images.Archive) error {
	out, err := b.ctr(ctx, nil, "images", "ls")
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	for _, a := range archives {
		if holds(out, a) {
			continue
		}
		b.say("importing image %s", a.Ref)
		if _, err := b.ctr(ctx, a.Data, "images", "import", "--digests=false", "-"); err != nil {
			return fmt.Errorf("import image %s: %w", a.Ref, err)
		}
	}
	return nil
}

// holds tells from a listing whether it has the image with this content.
func holds(listing string, a images.Archive) bool {
	for line := range strings.Lines(listing) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == a.Ref && f[2] == a.Digest {
			return true
		}
	}
	return false
}

// state is what a bed remembers in bed.json. The file also marks a directory as a bed.
type state struct {
	Bridge      string `json:"bridge"`      // its network interface
	Subnet      string `json:"subnet"`      // its addresses
	RestrictOOM bool   `json:"restrictOOM"` // this machine refuses to lower oom_score_adj
	Tried       bool   `json:"tried"`       // a sandbox has run here
}

// load reads the state, or makes a new bed's.
func (b *Bed) load(ctx context.Context) (state, error) {
	var s state
	data, err := os.ReadFile(b.path("bed.json"))
	if errors.Is(err, fs.ErrNotExist) {
		if s, err = newState(ctx, b.dir); err != nil {
			return s, err
		}
		return s, b.save(s)
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", b.path("bed.json"), err)
	}
	return s, nil
}

func (b *Bed) save(s state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(b.path("bed.json"), append(data, '\n'), 0o644)
}

// lock takes turns with other processes that work on the same thing.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
