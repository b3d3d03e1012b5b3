package podruntime

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// A step that is cut does not cut a start that has begun, but does not wait for one that hangs either.
func TestACutLeavesAStartToEnd(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		call    string
		start   time.Duration // it takes
		returns time.Duration // after the cut
		leaves  string
	}{
		{"a start that has begun ends well", "StartContainer", 3 * time.Second, 2 * time.Second, "running"},
		{"a start that hangs is cut later", "StartContainer", time.Hour, startGrace, "created"},
		{"a sandbox that has begun ends well", "RunSandbox", 3 * time.Second, 2 * time.Second, "a sandbox"},
		{"a sandbox that hangs is cut later", "RunSandbox", time.Hour, startGrace, "nothing"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.engine.Inject(tt.call, runtimetest.Delay(tt.start))
				p := pod(polite)
				ctx, cut := context.WithTimeout(t.Context(), time.Second)
				defer cut()
				begun := time.Now()
				_, err := n.Sync(ctx, p, runtime.SyncInput{Seen: n.look(p)})
				if took := time.Since(begun) - time.Second; !errors.Is(err, context.DeadlineExceeded) || took != tt.returns {
					t.Errorf("returned %v after the cut with %v", took, err)
				}
				seen := n.look(p)
				failed := slices.ContainsFunc(n.events, func(reason string) bool { return strings.HasPrefix(reason, "Failed") })
				if leaves(seen) != tt.leaves || failed || len(seen.Waiting) > 0 {
					t.Errorf("%s is left and not %s, events %v, waiting %v", leaves(seen), tt.leaves, n.events, seen.Waiting)
				}
			})
		})
	}
}

// leaves says how far a pod of one container came.
func leaves(seen runtime.Pod) string {
	switch {
	case len(seen.Sandboxes) == 0:
		return "nothing"
	case len(seen.Containers) == 0:
		return "a sandbox"
	default:
		return seen.Containers[0].State.String()
	}
}

func TestWhatWasCutIsTriedAgainAtOnce(t *testing.T) {
	for _, call := range []string{"RunSandbox", "CreateContainer"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.engine.Inject(call, runtimetest.Delay(time.Hour))
				p := pod(polite)
				ctx, cut := context.WithTimeout(t.Context(), time.Second)
				defer cut()
				if _, err := n.Sync(ctx, p, runtime.SyncInput{Seen: n.look(p)}); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				n.engine.Inject(call, nil)
				if seen, result := n.sync(p); !seen.ContainersRunning() || !result.RetryAt.IsZero() {
					t.Errorf("%+v, again in %v", seen, time.Until(result.RetryAt))
				}
			})
		})
	}
}

func TestCase_c178_the_number_of_an_instance_decides_before_its_time(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	p := runtime.Pod{Containers: []runtime.Container{
		{ID: "i0", Name: "init", Restarts: 0, Created: at(60), State: runtime.Created},
		{ID: "a0", Name: "app", Restarts: 0, Created: at(30)},
		{ID: "a1", Name: "app", Restarts: 1, Created: at(40)},
		{ID: "i1", Name: "init", Restarts: 1, Created: at(0), State: runtime.Running},
	}}
	order(&p)
	var got []string
	for _, c := range p.Containers {
		got = append(got, c.ID)
	}
	if diff := cmp.Diff([]string{"i1", "a1", "a0", "i0"}, got); diff != "" {
		t.Error(diff)
	}
	if c := p.Newest("init"); c.ID != "i1" || c.Restarts != 1 {
		t.Errorf("the newest is %+v", c)
	}
}

func TestAnImageVolumeIsPulledAndHeldLikeTheContainersImage(t *testing.T) {
	n := newNode(t)
	n.engine.Remote(runtime.Image{ID: "sha256:2", Tags: []string{"busybox:2"}, Size: 1})
	p := pod(polite)
	p.Spec.Volumes = []v1.Volume{{Name: "art", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "busybox:2", PullPolicy: v1.PullAlways}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "art", MountPath: "/art"}}
	in := runtime.SyncInput{Volumes: map[string]runtime.Volume{"art": {Image: "busybox:2"}}}
	for range 10 {
		in.Seen = n.look(p)
		if _, err := n.Sync(t.Context(), p, in); err != nil {
			t.Fatal(err)
		}
	}
	images, err := n.engine.ListImages(t.Context())
	if err != nil || len(images) != 2 {
		t.Fatalf("there are %v, want that of the container and that of its volume; %v", images, err)
	}
	c := n.look(p).Containers[0]
	if c.State != runtime.Running {
		t.Errorf("the container is %+v", c)
	}
}

// A container that cannot be started waits longer from time to time, like one that starts and ends.
func TestStartsThatFailBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.engine.Behave = func(*runtime.ContainerConfig) runtimetest.Behavior {
			return runtimetest.Behavior{Fail: errors.New("no such file")}
		}
		p := pod(polite)
		var starts []time.Duration
		begun := time.Now()
		for time.Since(begun) < 100*time.Second {
			before := len(n.look(p).Containers)
			_, _ = n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}) // fails, or has to wait
			if len(n.look(p).Containers) > before {
				starts = append(starts, time.Since(begun).Truncate(time.Second))
			}
			time.Sleep(time.Second)
		}
		if want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second}; !slices.Equal(starts, want) {
			t.Errorf("started at %v, want %v", starts, want)
		}
		if w := n.look(p).Waiting["a"]; w.Reason != "CrashLoopBackOff" {
			t.Errorf("waits with %+v", w)
		}
	})
}

// However often a container is tried that cannot be made, no files are left of it.
func TestNoFilesStayOfAContainerThatIsNotMade(t *testing.T) {
	for rule, refuse := range map[string]func(*node, *v1.Pod){
		"its config is refused": func(_ *node, p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: new(int64(0)), RunAsNonRoot: new(true)}
		},
		"the runtime refuses it": func(n *node, _ *v1.Pod) {
			n.engine.Inject("CreateContainer", runtimetest.Fail(errors.New("no")))
		},
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := pod(polite)
				p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
				refuse(n, p)
				for range 3 {
					n.sync(p)
					time.Sleep(time.Hour) // no back-off is longer
				}
				if left, _ := os.ReadDir(n.files.containerDir(p.UID, "a")); len(left) > 0 || n.look(p).Waiting["a"].Reason == "" {
					t.Errorf("%d files are left; it waits for %+v", len(left), n.look(p).Waiting["a"])
				}
			})
		})
	}
}

// People may have been told of an instance that could not be started: another agent knows its number, too.
func TestTheNumberOfAnInstanceThatDidNotStartIsNotLost(t *testing.T) {
	boom := runtimetest.Fail(errors.New("boom"))
	for _, tt := range []struct {
		name, call string
		want       []int // numbers of what there is after a second try
	}{
		{"the next one is not made either", "CreateContainer", []int{0}},
		{"the next one does not start either", "StartContainer", []int{1}},
		{"the first one does not go", "RemoveContainer", []int{1, 0}},
		{"the next one starts", "", []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			p := pod(polite)
			try := func(n *node, fails string) {
				n.engine.Inject("", nil)
				if fails != "" {
					n.engine.Inject(fails, boom)
				}
				_, _ = n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
				n.engine.Inject(fails, nil)
			}
			try(n, "StartContainer")
			n.memory.forget(p.UID) // as another agent
			try(n, tt.call)
			var got []int
			for _, c := range n.look(p).Containers {
				got = append(got, c.Restarts)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			n.memory.forget(p.UID)
			try(n, "")
			seen := n.look(p)
			if len(seen.Containers) != 1 || !seen.ContainersRunning() || seen.Containers[0].Restarts < tt.want[0] {
				t.Errorf("in the end there is %+v", seen.Containers)
			}
		})
	}
}
