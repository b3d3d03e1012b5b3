package chaos

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/bed"
)

// mending is ok with help for a runtime that does not get on by itself. When the agent is killed while containerd starts a
// container, containerd cancels the start, and at a bad moment that leaves a task behind which it knows nothing of: the
// container has ended and cannot be removed (containerd issue 11037). No call of CRI helps; removing the task does.
func mending(t *testing.T, b *bed.Bed, look func(context.Context) (view, error), ok func() error) func() error {
	t.Helper()
	start, said := time.Now(), false
	return func() error {
		err := ok()
		if err == nil || time.Since(start) < 10*time.Second {
			return err
		}
		if !said {
			said = true
			t.Logf("after %v still: %v", round(time.Since(start)), err)
		}
		v, listErr := look(t.Context())
		tasks := ctr(t, b, "tasks", "ls", "-q")
		for _, c := range v.containers {
			if c.GetState() == cri.ContainerState_CONTAINER_EXITED && slices.Contains(tasks, c.GetId()) {
				t.Logf("containerd left a task of container %s behind, which it takes for ended; removed", c.GetId())
				ctr(t, b, "tasks", "rm", "-f", c.GetId())
			}
		}
		return errors.Join(err, listErr)
	}
}

// ctr asks containerd past its CRI, and gives back the words of the answer.
func ctr(t *testing.T, b *bed.Bed, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bed.BinDir(), "ctr"),
		append([]string{"--address", filepath.Join(b.Dir(), "containerd.sock"), "--namespace", "k8s.io"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%v: %v: %s", cmd.Args, err, out)
	}
	return strings.Fields(string(out))
}
