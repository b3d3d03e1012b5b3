package podruntime

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func TestLogs(t *testing.T) {
	n := newNode(t)
	p := pod("echo one")
	n.sync(p) // ended, restarted once, now waits
	read := func(previous bool) string {
		r, err := n.Logs(t.Context(), p, "a", previous, logs.Options{})
		if err != nil {
			return err.Error()
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if read(false) != "one\n" || read(true) != "one\n" {
		t.Errorf("%q, previous %q", read(false), read(true))
	}
	for _, c := range []struct {
		name  string
		state v1.ContainerState
		want  string
	}{
		{"other", v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "PodInitializing"}}, `container "other" in pod "web" is waiting to start: PodInitializing`},
		{"other", v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull"}}, `container "other" in pod "web" is waiting to start: image can't be pulled`},
		{"other", v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}}, `container "other" in pod "web" is terminated`},
		{"other", v1.ContainerState{}, `container "other" in pod "web" is waiting to start - no logs yet`},
		{"b", v1.ContainerState{}, `container "other" in pod "web" is not available`}, // none of it was ever told
	} {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: c.name, State: c.state}}
		_, err := n.Logs(t.Context(), p, "other", false, logs.Options{})
		if !errors.Is(err, runtime.ErrNotFound) || err.Error() != c.want {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// An instance that was made and could not be started has written nothing: what there is to read is from the one before.
func TestLogsOfAContainerThatDoesNotStart(t *testing.T) {
	n := newNode(t)
	p := pod("echo one")
	n.engine.Inject("StartContainer", runtimetest.Fail(errors.New("boom")))
	if _, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); err != nil {
		t.Fatal(err)
	}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "RunContainerError"}}}}
	if c := n.look(p).Newest("a"); c == nil || c.State != runtime.Created {
		t.Fatalf("%+v", c)
	}
	_, err := n.Logs(t.Context(), p, "a", false, logs.Options{})
	if want := `container "a" in pod "web" is waiting to start: RunContainerError`; !errors.Is(err, runtime.ErrNotFound) || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// kubernetes/kubernetes#105440: each instance of a pod that crashed for months left a file, until there were no inodes.
func TestLastWordsGoWithTheirInstance(t *testing.T) {
	n := newNode(t)
	p := pod("echo one")
	p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	seen, _ := n.sync(p) // ended, restarted once, now waits
	files := func() []string {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(n.root, "lib/pods", string(p.UID), "containers/a/*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := files()
	if err := n.RemoveInstance(t.Context(), seen.Containers[1].ID); err != nil {
		t.Fatal(err)
	}
	if after := files(); len(before) != 2 || len(after) != 1 {
		t.Errorf("files before %q, after %q", before, after)
	}
}

// A container that waits for its restart has ended: that instance is the one before the next. It is all there is when
// dead ones are collected.
func TestPreviousLogOfAContainerThatWaits(t *testing.T) {
	n := newNode(t)
	p := pod("echo one")
	seen, _ := n.sync(p) // ended, restarted once, now waits
	if err := n.RemoveInstance(t.Context(), seen.Containers[1].ID); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		state v1.ContainerState
		found bool
	}{
		{v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, true},
		{v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}, false},
		{v1.ContainerState{}, false},
	} {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", State: c.state}}
		log, err := n.Logs(t.Context(), p, "a", true, logs.Options{})
		if c.found != (err == nil) || err != nil && !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("in state %v: %v", c.state.String(), err)
		}
		if err == nil {
			log.Close()
		}
	}
}

// Field reports kubernetes/kubernetes#52172, #61257 and #8945: links of what somebody removed by hand stayed for ever, and what was
// started as the agent ended never had one.
func TestLinksToLogsArePutRight(t *testing.T) {
	n := newNode(t)
	n.engine.Logs = true
	p := pod("echo x; sleep 100")
	seen, _ := n.sync(p)
	links := filepath.Join(n.root, "containers")
	there := func() (names []string) {
		t.Helper()
		if err := n.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil {
			t.Fatal(err)
		}
		entries, _ := os.ReadDir(links)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	first := "web_shop_a-" + seen.Containers[0].ID + ".log"
	others := filepath.Join(links, "others.log")
	if err := errors.Join(os.Remove(filepath.Join(links, first)), os.Symlink("/nowhere", others)); err != nil {
		t.Fatal(err)
	}
	if got := there(); !slices.Equal(got, []string{"others.log", first}) {
		t.Errorf("of one that runs there are %q", got)
	}
	log := filepath.Join(n.root, "pods/shop_web_u-1/a/0.log")
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	if got := there(); !slices.Equal(got, []string{"others.log", first}) {
		t.Errorf("while its log is rotated there are %q", got)
	}
	if err := n.engine.RemoveContainer(t.Context(), seen.Containers[0].ID); err != nil {
		t.Fatal(err)
	}
	if got := there(); !slices.Equal(got, []string{"others.log"}) {
		t.Errorf("of one that was removed there are %q", got)
	}
}
