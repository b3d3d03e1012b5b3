package guard

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// What the container prints: bursts at full speed, each a bit more than a log may have.
const (
	rotations = 20
	burst     = 100_000 // lines
	most      = 8 << 20 // bytes a log may have
	pad       = "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghij"
)

// counted is an engine that counts how often a log was opened anew.
type counted struct {
	*cri.Engine

	reopened atomic.Int64
}

func (c *counted) ReopenLog(ctx context.Context, id string) error {
	c.reopened.Add(1)
	return c.Engine.ReopenLog(ctx, id)
}

// Containerd writes 200 MB at full speed through twenty rotations with compression, while two read along.
func TestTwoFollowTwentyRotations(t *testing.T) {
	b := bed.ForTest(t)
	conn, err := cri.Dial(b.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	engine, err := cri.New(cri.Config{Runtime: conn})
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Engine: engine}
	may := t.TempDir()
	id, path := printer(t, engine, may)
	var ended atomic.Bool
	var readers sync.WaitGroup
	sums := make([][]byte, 2)
	for i := range sums {
		rc, err := logs.Open(t.Context(), path, logs.Options{Follow: true, Done: ended.Load})
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			defer rc.Close()
			sum := sha256.New()
			if _, err := io.Copy(sum, rc); err != nil {
				t.Error(err)
			}
			sums[i] = sum.Sum(nil)
		})
	}
	rotator, err := logs.NewRotator(logs.RotatorConfig{Containers: c, Reopen: c, MaxSize: most, MaxFiles: 4 * rotations, Interval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	rotated := make(chan error)
	go func() { rotated <- rotator.Run(ctx) }()
	for next := 0; ; time.Sleep(20 * time.Millisecond) {
		for ; int64(next) < c.reopened.Load(); next++ {
			if err := os.WriteFile(filepath.Join(may, fmt.Sprint(next)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := engine.Container(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if s.State == runtime.Exited {
			break
		}
	}
	ended.Store(true)
	readers.Wait()
	stop()
	if err := <-rotated; err != nil {
		t.Error(err)
	}
	want, size := sha256.New(), 0
	for i := range (rotations + 1) * burst {
		n, _ := fmt.Fprintf(want, "%d %s\n", i, pad)
		size += n
	}
	for i, sum := range sums {
		if !bytes.Equal(sum, want.Sum(nil)) {
			t.Errorf("reader %d got something else than was printed", i)
		}
	}
	if got := onDisk(t, path); !bytes.Equal(got, want.Sum(nil)) {
		t.Error("something else than was printed is on the disk")
	}
	if n := c.reopened.Load(); n < rotations {
		t.Errorf("%d rotations", n)
	}
	t.Logf("%d MB in %d rotations", size>>20, c.reopened.Load())
}

// printer starts a container, and returns where it logs to. After a burst it waits until may has a file of the burst's number.
func printer(t *testing.T, engine *cri.Engine, may string) (id, path string) {
	t.Helper()
	ctx := t.Context()
	dir := t.TempDir()
	name := fmt.Sprintf("printer-%d", time.Now().UnixNano())
	sandbox := &runtime.SandboxConfig{Pod: runtime.PodRef{Namespace: "guard", Name: name, UID: types.UID(name)}, LogDir: dir}
	box, err := engine.RunSandbox(ctx, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := engine.StopSandbox(ctx, box); err != nil {
			t.Error(err)
		}
		if err := engine.RemoveSandbox(ctx, box); err != nil {
			t.Error(err)
		}
	})
	img, err := engine.Image(ctx, images.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`BEGIN { for (k = 0; k <= %d; k++) { for (i = 0; i < %d; i++) print k * %d + i, pad; fflush(); if (k < %d) system("until [ -e /may/" k " ]; do sleep 0.02; done") } }`, rotations, burst, burst, rotations)
	id, err = engine.CreateContainer(ctx, box, &runtime.ContainerConfig{
		Name: "app", Image: img.ID, Command: []string{"awk", "-v", "pad=" + pad, script}, LogPath: "app.log", Sandbox: sandbox,
		Mounts: []runtime.Mount{{HostPath: may, ContainerPath: "/may", ReadOnly: true}},
	})
	if err == nil {
		err = engine.StartContainer(ctx, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id, filepath.Join(dir, "app.log")
}

// onDisk is the sum of what the log and its rotated files hold, as a stranger reads them.
func onDisk(t *testing.T, path string) []byte {
	t.Helper()
	names, err := filepath.Glob(path + ".*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range append(names, path) {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		var in io.Reader = f
		if strings.HasSuffix(name, ".gz") {
			if in, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		}
		for lines := bufio.NewScanner(in); lines.Scan(); {
			_, record, _ := strings.Cut(lines.Text(), " stdout ")
			tag, text, _ := strings.Cut(record, " ")
			if tag == "F" { // otherwise the line goes on: containerd cuts it when the log is opened anew
				text += "\n"
			}
			_, _ = io.WriteString(sum, text)
		}
		_ = f.Close()
	}
	return sum.Sum(nil)
}
