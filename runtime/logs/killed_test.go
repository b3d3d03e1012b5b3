package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const victimsLog = "KUBELETKIT_TEST_ROTATES"

// keeper is a runtime with one container whose log somebody else writes.
type keeper struct{ path string }

func (k keeper) ListContainers(context.Context, runtime.Filter) ([]runtime.Container, error) {
	return []runtime.Container{{ID: "c", Name: "app"}}, nil
}

func (k keeper) Container(context.Context, string) (runtime.Container, error) {
	return runtime.Container{ID: "c", LogPath: k.path}, nil
}

func (k keeper) ReopenLog(context.Context, string) error {
	f, err := os.OpenFile(k.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

func (k keeper) rotate(ctx context.Context) error {
	r, err := NewRotator(RotatorConfig{Containers: k, Reopen: k, MaxSize: 1, MaxFiles: 100})
	if err != nil {
		return err
	}
	return r.Rotate(ctx)
}

// victim is the agent that is killed: the test's own program, started with the path of a log.
func victim(path string) error {
	fmt.Println("rotates")
	for {
		if err := (keeper{path}).rotate(context.Background()); err != nil {
			return err
		}
	}
}

// An agent is killed wherever it is, in the middle of compressing too, again and again, while a container goes on writing into
// the file that it has open. In the end each line is there once, and in order.
func TestAKilledAgentLosesAndDoublesNoLine(t *testing.T) {
	k := keeper{filepath.Join(t.TempDir(), "0.log")}
	line, halfway := 0, 0
	var open *os.File // as the container has it
	defer func() { _ = open.Close() }()
	for range 15 {
		switch next, err := os.OpenFile(k.path, os.O_APPEND|os.O_WRONLY, 0); {
		case err == nil:
			_ = open.Close() // nil is an error that does not matter
			open = next
		case !errors.Is(err, fs.ErrNotExist):
			t.Fatal(err)
		case open == nil:
			if err := k.ReopenLog(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if open, err = os.OpenFile(k.path, os.O_APPEND|os.O_WRONLY, 0); err != nil {
				t.Fatal(err)
			}
		}
		w := bufio.NewWriter(open)
		for range 40_000 {
			fmt.Fprintf(w, "%d %x %s\n", line, rand.Uint64(), pad)
			line++
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		killHalfway(t, k.path)
		left, err := filepath.Glob(k.path + ".*" + unfinished)
		if err != nil {
			t.Fatal(err)
		}
		halfway += min(len(left), 1)
	}
	for range 2 { // the first moves the log away, the second clears up
		if err := k.rotate(t.Context()); err != nil {
			t.Error(err)
		}
	}
	n := 0
	for text := range strings.Lines((&writer{t: t, path: k.path}).all()) {
		if !strings.HasPrefix(text, fmt.Sprintf("%d ", n)) || !strings.HasSuffix(text, pad+"\n") {
			t.Fatalf("line %d is %.60q", n, text)
		}
		n++
	}
	if n != line {
		t.Errorf("%d of %d lines are there", n, line)
	}
	t.Logf("killed 15 times, %d times in the middle of compressing", halfway)
}

// killHalfway starts an agent and kills it after a moment.
func killHalfway(t *testing.T, path string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimsLog+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if first, err := bufio.NewReader(out).ReadString('\n'); err != nil || first != "rotates\n" {
		t.Errorf("it says %q, %v", first, err)
	}
	time.Sleep(rand.N(120 * time.Millisecond))
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
}
