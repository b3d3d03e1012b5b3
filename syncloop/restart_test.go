package syncloop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/internal/podsizes"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
)

// stranger makes a sandbox, with a container that runs in it if it lasts. A pod without a uid is another tool's.
func stranger(n *node, name string, uid types.UID, lasts bool) {
	n.t.Helper()
	ctx, ref := n.t.Context(), runtime.PodRef{Namespace: "default", Name: name, UID: uid}
	config := &runtime.SandboxConfig{Pod: ref}
	box, err := n.engine.RunSandbox(ctx, config)
	if err == nil {
		var id string
		id, err = n.engine.CreateContainer(ctx, box, &runtime.ContainerConfig{Pod: ref, Name: "app", Image: "img", Command: []string{"serve"}, Sandbox: config})
		if err == nil {
			err = n.engine.StartContainer(ctx, id)
		}
	}
	if err != nil {
		n.t.Fatal(err)
	}
	if !lasts {
		n.engine.EndSandbox(box)
	}
}

func TestCase_c157_what_nobody_wants_goes_once_all_sources_have_spoken(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("halt")
		for i := range 5 {
			stranger(n, fmt.Sprint("left", i), types.UID(fmt.Sprint("left", i)), i < 2)
		}
		stranger(n, "foreign", "", true)
		sandboxes, containers := n.engine.Truth()
		for _, c := range containers { // of one only the container is left
			if c.Pod.Name == "left4" {
				err := n.engine.Edit(c.ID, func(c *runtime.Container) { c.SandboxID = "gone" })
				if err = errors.Join(err, n.engine.RemoveSandbox(t.Context(), sandboxes[slices.IndexFunc(sandboxes, func(s runtime.Sandbox) bool { return s.Name == "left4" })].ID)); err != nil {
					t.Fatal(err)
				}
			}
		}
		n.do("server away")
		n.do("start")
		time.Sleep(5 * time.Minute)
		if boxes, all := n.engine.Truth(); len(boxes) != 5 || len(all) != 6 {
			t.Errorf("while a source is silent: %d sandboxes, %d containers", len(boxes), len(all))
		}
		n.do("server back")
		time.Sleep(time.Minute)
		boxes, all := n.engine.Truth()
		if len(boxes) != 1 || boxes[0].Name != "foreign" || !boxes[0].Ready || len(all) != 1 || all[0].State != runtime.Running {
			t.Errorf("left: %+v, %+v", boxes, all)
		}
	})
}

// kept is a source that remembers a server's pods while that cannot be reached.
type kept []*v1.Pod

func (k kept) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	set(k, false)
	<-ctx.Done()
	return nil
}

func TestCase_c158_a_reboot_without_a_server(t *testing.T) {
	for _, remembers := range []bool{false, true} {
		t.Run(fmt.Sprint("remembers=", remembers), func(t *testing.T) {
			var pods kept
			tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
				if pods != nil {
					cfg.Sources["api"] = pods
				}
			}
			onNode(t, tune, func(n *node) {
				n.put("web", "app=sleep_100000", nil)
				n.do("add static app=sleep_100000")
				time.Sleep(time.Second)
				n.do("halt")
				n.do("server away")
				if remembers {
					pods = kept{n.api.get("web")}
				}
				n.engine.Reboot()
				n.do("start")
				time.Sleep(10 * time.Minute)
				want := "[static-1]"
				if remembers {
					want = "[static-1 web-1]"
				}
				_, all := n.engine.Truth()
				there := slices.ContainsFunc(all, func(c runtime.Container) bool { return c.Pod.Name == "web" })
				if got := fmt.Sprint(n.runs()); got != want || !there {
					t.Errorf("these run: %s, want %s; something of web is there: %v", got, want, there)
				}
			})
		})
	}
}

func TestCase_c159_a_deletion_while_the_server_was_away_is_graceful(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.put("web", "app=sleep_100000", nil) // deaf to the stop signal
		n.do("server away")
		n.do("delete web grace=20")
		time.Sleep(6 * time.Minute)
		if got := fmt.Sprint(n.runs()); got != "[web-1]" {
			t.Errorf("while the server is away these run: %s", got)
		}
		n.do("server back")
		begun := time.Now()
		for len(n.runs()) > 0 && time.Since(begun) < time.Hour {
			time.Sleep(time.Second)
		}
		if took := time.Since(begun); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("it took %v to end", took)
		}
	})
}

// stateOf is what an agent that ran a pod of 100m leaves, in a directory of its own.
func stateOf(t *testing.T) (dir string, content []byte) {
	t.Helper()
	dir = t.TempDir()
	store := podsizes.NewStore(filepath.Join(dir, "allocated_pods_state"), checkpoint.Write, func(err error) { t.Error(err) })
	store.Set("web-1", sizesOf("100m"))
	if err := store.Save(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "allocated_pods_state"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, content
}

func sizesOf(cpu string) podsizes.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}}
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	return podsizes.Of(p)
}

func TestCase_c160_a_damaged_state_file_stops_no_agent(t *testing.T) {
	for rule, damage := range map[string]func(path string, whole []byte) error{
		"empty":         func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"truncated":     func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
		"two documents": func(path string, b []byte) error { return os.WriteFile(path, append(b, b...), 0o600) },
		"wrong checksum": func(path string, b []byte) error {
			return os.WriteFile(path, []byte(strings.Replace(string(b), "100m", "200m", 1)), 0o600)
		},
		"older schema": func(path string, _ []byte) error {
			return os.WriteFile(path, []byte(`{"entries":{"web-1":{}},"checksum":1}`), 0o600)
		},
		"a directory": func(path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700))
		},
		"no place to write": func(path string, _ []byte) error {
			return errors.Join(os.RemoveAll(filepath.Dir(path)), os.WriteFile(filepath.Dir(path), nil, 0o600))
		},
	} {
		t.Run(rule, func(t *testing.T) {
			dir, whole := stateOf(t)
			path := filepath.Join(dir, "allocated_pods_state")
			if err := damage(path, whole); err != nil {
				t.Fatal(err)
			}
			onNode(t, func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) { cfg.State = dir }, func(n *node) {
				n.put("web", "app=sleep_100000 cpu=150m", nil)
				time.Sleep(time.Minute)
				if got := n.api.phaseOf("web"); got != "Running " {
					t.Errorf("the pod is %s", got)
				}
			})
			_, aside := os.Lstat(path + ".damaged")
			if unreadable := rule == "a directory" || rule == "no place to write"; (aside == nil) == unreadable {
				t.Errorf("set aside: %v", aside)
			}
			if aside != nil {
				return
			}
			store := podsizes.NewStore(path, checkpoint.Write, func(err error) { t.Error(err) })
			if got, known := store.Get("web-1"); !known || !got.Equal(sizesOf("150m")) {
				t.Errorf("the file has %+v, %v", got, known)
			}
		})
	}
}

// Killed between any two of its system calls, a writer leaves the old version of its file or the new one.
func TestCase_c161_a_state_file_is_always_whole(t *testing.T) {
	if path := os.Getenv("KUBELETKIT_TEST_WRITES"); path != "" {
		store := podsizes.NewStore(path, checkpoint.Write, func(err error) { t.Error(err) })
		fmt.Println("writes")
		for i := range 200 {
			uid := types.UID(strconv.Itoa(i % 10))
			if _, known := store.Get(uid); known && i%3 == 0 {
				store.Forget(uid)
			}
			store.Set(uid, sizesOf(strconv.Itoa(1+i)+"m"))
			if err := store.Save(); err != nil {
				t.Error(err)
			}
		}
		return
	}
	path := filepath.Join(t.TempDir(), "allocated_pods_state")
	known := 0
	for i := range 25 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestCase_c161_a_state_file_is_always_whole$")
		cmd.Env = append(os.Environ(), "KUBELETKIT_TEST_WRITES="+path)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "writes\n" {
			t.Errorf("it says %q, %v", said, err)
		}
		killed := time.AfterFunc(time.Duration(1+7*i)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it was killed
		killed.Stop()
		store := podsizes.NewStore(path, checkpoint.Write, func(err error) { t.Errorf("after kill %d: %v", i, err) })
		for uid := range 10 {
			if _, ok := store.Get(types.UID(strconv.Itoa(uid))); ok {
				known++
			}
		}
	}
	if _, err := os.Lstat(path + ".damaged"); !errors.Is(err, fs.ErrNotExist) || known == 0 {
		t.Errorf("%d known after all kills; set aside: %v", known, err)
	}
}

// What an agent let in that did not know how big its machine is, or that had more to give, stays: also over a reboot, and where
// what was promised is lost, as long as it runs.
func TestWhatWasLetInBeforeKeepsItsPlaceThoughThereIsNoRoom(t *testing.T) {
	own := func(cpu string) *v1.Node {
		return &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourcePods: resource.MustParse("10")}}}
	}
	for name, c := range map[string]struct {
		state  bool
		again  string
		object *v1.Node
		want   string
	}{
		"another agent":                          {true, "restart", nil, "[first-1 second-1 sent-1 small-1]"},
		"another boot":                           {true, "reboot", nil, "[first-1 second-1 sent-1 small-1]"},
		"another agent, and no promises":         {false, "restart", nil, "[first-1 second-1 sent-1 small-1]"},
		"another agent, and an object with less": {true, "restart", own("2500m"), "[first-1 small-1]"},
	} {
		t.Run(name, func(t *testing.T) {
			var size, object *v1.Node
			tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
				cfg.Admit = []syncloop.Admitter{admit.Fit{
					Node: func() *v1.Node { return object }, Own: func() *v1.Node { return size }, Kept: cfg.Roster.Kept,
				}}
			}
			onNode(t, tune, func(n *node) {
				if c.state {
					n.do("halt")
					n.state = t.TempDir()
					n.do("start")
				}
				for _, add := range []string{"first", "second", "sent source=api"} {
					n.do("add " + add + " app=sleep_100000 cpu=2000m")
					time.Sleep(time.Second)
				}
				n.do("halt")
				size, object = own("3"), c.object
				n.do(c.again)
				time.Sleep(time.Minute)
				n.do("add late app=sleep_100000 cpu=2000m")
				n.do("add small app=sleep_100000 cpu=0m")
				time.Sleep(time.Minute)
				if got := fmt.Sprint(n.runs()); got != c.want {
					t.Errorf("these run: %s, want %s", got, c.want)
				}
				if n.roster.Kept("first-1") || n.roster.Kept("late-1") || n.roster.Kept("nobody") {
					t.Error("it is decided, and still kept")
				}
			})
		})
	}
}

// A pod was over or deleted, and no agent was there. What of it still runs has to be seen before others come; when nothing does, its
// room is free.
func TestAPodThatCameToEndHoldsItsRoomForAsLongAsItRuns(t *testing.T) {
	for _, end := range []string{"write old Failed", "delete old grace=20"} {
		for _, slow := range []string{"", "ListContainers", "ListSandboxes"} {
			for _, runs := range []bool{true, false} {
				t.Run(fmt.Sprint(end, slow, runs), func(t *testing.T) {
					onNode(t, fits("10"), func(n *node) {
						n.do("add old app=trap_''_TERM;_sleep_100000 source=api policy=Never grace=20 cpu=1500m")
						time.Sleep(time.Second)
						n.do("halt")
						n.do(end)
						if !runs {
							n.do("exit old/app 1")
						}
						n.do("add new app=sleep_100000 source=api cpu=1500m")
						if slow != "" {
							n.do("slow " + slow + " 3s")
						}
						n.do("start")
						time.Sleep(15 * time.Second)
						want := "[new-1], new Running"
						if runs {
							want = "[old-1], new Failed OutOfcpu"
						}
						n.stands("while it ends", want, "new")
					})
				})
			}
		}
	}
}
