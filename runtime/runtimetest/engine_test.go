package runtimetest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func web() runtime.PodRef { return runtime.PodRef{Namespace: "default", Name: "web", UID: "u1"} }

// start makes a pod with one container that runs cmd.
func start(t *testing.T, e *runtimetest.Engine, cmd ...string) (sandbox, container string) {
	t.Helper()
	sandbox, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: web()})
	if err != nil {
		t.Fatal(err)
	}
	container, err = e.CreateContainer(t.Context(), sandbox, &runtime.ContainerConfig{
		Pod: web(), Name: "main", Image: "example.com/busybox:1", Command: cmd,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), container); err != nil {
		t.Fatal(err)
	}
	return sandbox, container
}

func look(t *testing.T, e *runtimetest.Engine, id string) runtime.Container {
	t.Helper()
	c, err := e.Container(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTimeIsThatOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		e := runtimetest.New(busybox())
		_, id := start(t, e, "sh", "-c", "sleep 3600; exit 2")
		time.Sleep(time.Hour - time.Nanosecond)
		if c := look(t, e, id); c.State != runtime.Running {
			t.Errorf("a moment before the end: %v", c.State)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if c := look(t, e, id); c.ExitCode != 2 || c.Finished != begin.Add(time.Hour) {
			t.Errorf("code %d at %v, want 2 at %v", c.ExitCode, c.Finished, begin.Add(time.Hour))
		}
	})
}

func TestBehaviorDecidesHowAStopGoes(t *testing.T) {
	for name, row := range map[string]struct {
		does  runtimetest.Behavior
		grace time.Duration
		took  time.Duration
		code  int32
	}{
		"at once":                         {runtimetest.Behavior{}, time.Minute, 0, 0},
		"with a code":                     {runtimetest.Behavior{StopCode: 143}, time.Minute, 0, 143},
		"after a while":                   {runtimetest.Behavior{StopAfter: 10 * time.Second}, time.Minute, 10 * time.Second, 0},
		"killed because it takes long":    {runtimetest.Behavior{StopAfter: 2 * time.Minute}, time.Minute, time.Minute, 137},
		"killed because it is deaf":       {runtimetest.Behavior{StopAfter: runtimetest.Deaf}, time.Minute, time.Minute, 137},
		"killed because there is no time": {runtimetest.Behavior{}, 0, 0, 137},
		"by itself meanwhile": {
			runtimetest.Behavior{Exits: true, After: 5 * time.Second, Code: 3, StopAfter: runtimetest.Deaf}, time.Minute, 5 * time.Second, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := runtimetest.New(busybox())
				e.Behave = func(*runtime.ContainerConfig) runtimetest.Behavior { return row.does }
				_, id := start(t, e)
				begin := time.Now()
				if err := e.StopContainer(t.Context(), id, row.grace); err != nil {
					t.Fatal(err)
				}
				if c := look(t, e, id); time.Since(begin) != row.took || c.ExitCode != row.code || c.State != runtime.Exited {
					t.Errorf("%v with code %d after %v, want code %d after %v", c.State, c.ExitCode, time.Since(begin), row.code, row.took)
				}
			})
		})
	}
}

func TestStartThatFailsLeavesAnExitedContainer(t *testing.T) {
	e := runtimetest.New(busybox())
	noSuchFile := errors.New("no such file")
	e.Behave = func(*runtime.ContainerConfig) runtimetest.Behavior { return runtimetest.Behavior{Fail: noSuchFile} }
	sandbox, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: web()})
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.CreateContainer(t.Context(), sandbox, &runtime.ContainerConfig{Pod: web(), Name: "main", Image: "sha256:b0b0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); !errors.Is(err, noSuchFile) {
		t.Errorf("StartContainer = %v", err)
	}
	if c := look(t, e, id); c.State != runtime.Exited || c.ExitCode != 128 || c.Reason != "StartError" {
		t.Errorf("%+v", c)
	}
}

func TestFaultsHappenToCalls(t *testing.T) {
	boom := errors.New("boom")
	list := func(e *runtimetest.Engine, ctx context.Context) error {
		_, err := e.ListImages(ctx)
		return err
	}
	t.Run("errors, as often as told", func(t *testing.T) {
		e := runtimetest.New()
		e.Inject("ListImages", runtimetest.Times(2, runtimetest.Fail(boom)))
		for i, want := range []error{boom, boom, nil} {
			if err := list(e, t.Context()); !errors.Is(err, want) {
				t.Errorf("call %d: %v, want %v", i, err, want)
			}
		}
		if n := e.Calls("ListImages"); n != 3 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("slowness", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := runtimetest.New()
			e.Inject("", runtimetest.Delay(time.Minute))
			begin := time.Now()
			if err := list(e, t.Context()); err != nil || time.Since(begin) != time.Minute {
				t.Error(err, time.Since(begin))
			}
		})
	})
	t.Run("hanging until the context ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := runtimetest.New()
			e.Inject("ListImages", runtimetest.Hang)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := list(e, ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			e.Inject("ListImages", nil)
			if err := list(e, t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("answers lost after the act", func(t *testing.T) {
		e := runtimetest.New()
		e.Inject("RunSandbox", runtimetest.Lost(boom))
		if _, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: web()}); !errors.Is(err, boom) {
			t.Error(err)
		}
		if l, err := e.ListSandboxes(t.Context(), runtime.Filter{}); err != nil || len(l) != 1 {
			t.Errorf("the sandbox is not there: %v, %v", l, err)
		}
	})
	t.Run("only those that match", func(t *testing.T) {
		e := runtimetest.New(busybox())
		_, id := start(t, e)
		e.Inject("Container", runtimetest.Only(func(c runtimetest.Call) bool {
			return c.Pod.Name == "web" && c.Container == "main"
		}, runtimetest.Fail(boom)))
		if _, err := e.Container(t.Context(), id); !errors.Is(err, boom) {
			t.Error(err)
		}
		if _, err := e.Container(t.Context(), "nobody"); !errors.Is(err, runtime.ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestAccidentsEndContainers(t *testing.T) {
	e := runtimetest.New(busybox())
	sandbox, id := start(t, e)
	if got := e.Newest("u1", "main"); got != id {
		t.Errorf("Newest = %q", got)
	}
	if err := e.Exit(id, 9); err != nil {
		t.Fatal(err)
	}
	if c := look(t, e, id); c.ExitCode != 9 || c.Reason != "Error" {
		t.Errorf("after Exit: %+v", c)
	}
	e.Reboot()
	if b, err := e.Sandbox(t.Context(), sandbox); err != nil || b.Ready || b.IPs != nil {
		t.Errorf("after Reboot: %+v, %v", b, err)
	}
	if err := e.Edit(id, func(c *runtime.Container) { c.Reason = "OOMKilled" }); err != nil || look(t, e, id).Reason != "OOMKilled" {
		t.Errorf("after Edit: %v", err)
	}
	err := e.EditSandbox(sandbox, func(b *runtime.Sandbox) { b.IPs = []string{"fd00::1"} })
	if b, _ := e.Sandbox(t.Context(), sandbox); err != nil || len(b.IPs) != 1 {
		t.Errorf("after EditSandbox: %+v, %v", b, err)
	}
	for name, err := range map[string]error{
		"Exit": e.Exit("nobody", 1), "Edit": e.Edit("nobody", nil), "EditSandbox": e.EditSandbox("nobody", nil),
		"Print": e.Print("nobody", ""),
	} {
		if !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("%s of nobody: %v", name, err)
		}
	}
}

func TestPullBringsWhatRegistriesHave(t *testing.T) {
	e := runtimetest.New()
	e.Remote(runtime.Image{ID: "sha256:n1", Tags: []string{"example.com/nginx:latest"}, Size: 7})
	if _, err := e.Image(t.Context(), "example.com/nginx"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("before the pull: %v", err)
	}
	var bytes int64
	ref, err := e.PullImage(t.Context(), runtime.PullRequest{
		Image: "example.com/nginx", Progress: func(done, _ int64) { bytes = done },
	})
	if err != nil || ref != "sha256:n1" || bytes != 7 {
		t.Errorf("PullImage = %q, %v after %d bytes", ref, err, bytes)
	}
	if i, err := e.Image(t.Context(), "example.com/nginx"); err != nil || i.ID != ref {
		t.Errorf("after the pull: %+v, %v", i, err)
	}
	if _, err := e.PullImage(t.Context(), runtime.PullRequest{Image: "example.com/none"}); err == nil {
		t.Error("an image that nobody has was pulled")
	}
	if err := e.RemoveImage(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if l, err := e.ListImages(t.Context()); err != nil || len(l) != 0 {
		t.Errorf("after the removal: %v, %v", l, err)
	}
}

func TestListsAreShallow(t *testing.T) {
	e := runtimetest.New(busybox())
	start(t, e)
	boxes, err := e.ListSandboxes(t.Context(), runtime.Filter{})
	if err != nil || len(boxes) != 1 || boxes[0].IPs != nil || boxes[0].NetworkKnown {
		t.Errorf("ListSandboxes = %+v, %v", boxes, err)
	}
	list, err := e.ListContainers(t.Context(), runtime.Filter{})
	if err != nil || len(list) != 1 || !list[0].Started.IsZero() || list[0].ImageRef != "" || list[0].Resources != nil {
		t.Errorf("ListContainers = %+v, %v", list, err)
	}
}

func TestUpdateKeepsWhatItDoesNotName(t *testing.T) {
	e := runtimetest.New(busybox())
	sandbox, id := start(t, e)
	for _, r := range []runtime.Resources{
		{CPUShares: 100, Hugepages: map[string]uint64{"2Mi": 1}},
		{Memory: 5, Hugepages: map[string]uint64{"1Gi": 2}},
	} {
		if err := errors.Join(e.UpdateContainer(t.Context(), id, r), e.UpdateSandbox(t.Context(), sandbox, r, r)); err != nil {
			t.Fatal(err)
		}
	}
	sizes, overhead := e.SandboxResources(sandbox)
	for what, r := range map[string]runtime.Resources{"container": *look(t, e, id).Resources, "sandbox": sizes, "overhead": overhead} {
		if r.CPUShares != 100 || r.Memory != 5 || len(r.Hugepages) != 2 {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

func TestBrokenEventStreamIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := runtimetest.New(busybox())
		var seen []runtime.Event
		done := make(chan error)
		go func() { done <- e.Events(t.Context(), func(ev runtime.Event) { seen = append(seen, ev) }) }()
		synctest.Wait()
		start(t, e)
		boom := errors.New("boom")
		e.BreakEvents(boom)
		if err := <-done; !errors.Is(err, boom) || len(seen) < 3 {
			t.Errorf("Events = %v after %d events", err, len(seen))
		}
	})
}

func TestUnknownHandlerIsRefused(t *testing.T) {
	e := runtimetest.New()
	if _, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: web(), Handler: "gvisor"}); err == nil {
		t.Error("a sandbox was made")
	}
}

func TestLogsAreWrittenOnlyWhenAskedFor(t *testing.T) {
	for _, asked := range []bool{false, true} {
		dir := t.TempDir()
		e := runtimetest.New(busybox())
		e.Logs = asked
		sandbox, err := e.RunSandbox(t.Context(), &runtime.SandboxConfig{Pod: web(), LogDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		id, err := e.CreateContainer(t.Context(), sandbox, &runtime.ContainerConfig{
			Pod: web(), Name: "main", Image: "sha256:b0b0", LogPath: "main/0.log",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.StartContainer(t.Context(), id), e.Print(id, "hello"), e.Exit(id, 0)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "main/0.log"))
		if (err == nil) != asked || asked && !strings.HasSuffix(string(b), " stdout F hello\n") {
			t.Errorf("asked %v: %q, %v", asked, b, err)
		}
	}
}
