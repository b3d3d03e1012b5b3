package firstlight

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// pidOf is the process of a container on this machine; 0: it does not run.
func pidOf(t *testing.T, n *node, id string) int {
	t.Helper()
	a := containerStatus(t, n.cri, id)
	if a.GetStatus().GetState() != cri.ContainerState_CONTAINER_RUNNING {
		return 0
	}
	return pidIn(t, a.GetInfo())
}

func pidIn(t *testing.T, info map[string]string) int {
	t.Helper()
	var v struct{ Pid int }
	if err := json.Unmarshal([]byte(info["info"]), &v); err != nil {
		t.Fatal(err)
	}
	return v.Pid
}

// restarted is an agent on the same directories, with other flags.
func restarted(t *testing.T, n *node, flags ...string) *node {
	t.Helper()
	next := newNode(t, n.bed, append([]string{
		"--pod-manifest-path=" + n.Manifests, "--root-dir=" + n.Root, "--pod-logs-dir=" + n.Logs, "--container-logs-dir=" + n.Links, "--cgroup-root=" + n.Cgroup,
	}, flags...)...)
	next.Manifests, next.Root, next.Logs, next.Links = n.Manifests, n.Root, n.Logs, n.Links
	return next
}

func (n *node) TestCase_c100_uidPerNodeAndFile(t *testing.T) {
	pod := shell{name: "c100", grace: 2}
	path := filepath.Join(n.Manifests, "c100.yaml")
	n.put(t, "c100.yaml", pod.String())
	n.Start()
	first := n.up(t, pod, patience)
	container := containers(t, n.cri, pod.on())[0].GetId()

	same := func(what string) {
		t.Helper()
		// Whatever the agent does about it, it has done once it runs a pod that was written later.
		marker := shell{name: "marker", version: what, grace: 1}
		n.put(t, "marker.yaml", marker.String())
		n.up(t, marker, patience)
		p, err := n.Pod(t.Context(), "default", pod.on())
		if err != nil {
			t.Fatal(err)
		}
		if all := containers(t, n.cri, pod.on()); p.UID != first.UID || len(all) != 1 || all[0].GetId() != container {
			t.Errorf("%s: uid %s was %s, containers %v", what, p.UID, first.UID, all)
		}
	}
	write(t, path, pod.String())
	same("the same bytes written again")
	n.put(t, "c100.yaml", pod.String())
	same("the same bytes renamed over")
	if err := os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	same("another time")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	same("another mode")
	n.stop(t)
	n.Start()
	same("a restart of the agent")

	// The same content under a second name: another uid, refused while the first is there.
	n.put(t, "c100-copy.yaml", pod.String())
	t.Logf("the copy: %s", n.says(t, "refused", "c100-copy.yaml"))
	same("a copy beside it")
	n.take(t, "c100.yaml")
	n.runs(t, "default", pod.on(), "runs from the copy", patience, func(p *v1.Pod) error {
		if p.UID == first.UID {
			return errors.New("has the uid of the other file")
		}
		return ready(p)
	})
	never(t, n.seen.ran(t, pod.on(), 2))
	n.take(t, "c100-copy.yaml")
	n.put(t, "c100.yaml", pod.String())
	n.runs(t, "default", pod.on(), "is back with its first uid", patience, func(p *v1.Pod) error {
		if p.UID != first.UID {
			return fmt.Errorf("has the uid %s", p.UID)
		}
		return ready(p)
	})

	// The same file on another node.
	n.stop(t)
	other := restarted(t, n, "--hostname-override=n2")
	other.Start()
	p := other.runs(t, "default", "c100-n2", "runs on another node", patience, ready)
	if p.UID == first.UID {
		t.Error("the same uid on two nodes")
	}
	other.gone(t, first, patience) // it is no pod of this node
}

func (n *node) TestCase_c103_oddEntries(t *testing.T) {
	entry := func(name string) string { return filepath.Join(n.Manifests, name) }
	pod := shell{name: "c103", grace: 2}
	n.put(t, "e.yaml", pod.String())
	n.Start()
	p := n.up(t, pod, patience)
	n.stop(t)
	write(t, entry("sub/pod.yaml"), shell{name: "c103-sub"}.String())
	big := strings.Repeat("# a manifest is far smaller\n", 20<<20/28+1)
	write(t, entry("d.yaml"), big)
	for _, err := range []error{
		syscall.Mkfifo(entry("a-pipe"), 0o644),
		os.Symlink("missing", entry("b")),
		os.Symlink("/dev/zero", entry("c")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", entry("f-socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()

	n.Start()
	n.Ready()
	n.says(t, "refused", entry("d.yaml"))
	small := n.peak(t)
	if err := syscall.Mkfifo(entry("g-pipe"), 0o644); err != nil { // while the watcher runs
		t.Fatal(err)
	}
	n.says(t, "refused", entry("g-pipe"))
	for round := range 5 { // each is another look at all entries
		late := shell{name: "c103-late", version: fmt.Sprint(round), grace: 1}
		n.put(t, "late.yaml", late.String())
		n.up(t, late, patience)
	}
	for _, name := range []string{"a-pipe", "b", "c", "d.yaml", "f-socket", "g-pipe", "sub"} {
		if told := n.logged("refused", "file="+entry(name)+" "); len(told) != 1 {
			t.Errorf("%s is named %d times: %v", name, len(told), told)
		} else {
			t.Log(told[0])
		}
	}
	pods, err := n.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 2 {
		t.Errorf("%d pods run", len(pods))
	}
	if ran := n.seen.ran(t, p.Name, 1); len(ran) != 1 {
		t.Errorf("the good pod ran %d times", len(ran))
	}
	t.Logf("memory at most %d MiB, later %d MiB", small>>20, n.peak(t)>>20)
	if n.peak(t) > small+32<<20 || n.peak(t) > 128<<20 {
		t.Errorf("the agent had %d MiB", n.peak(t)>>20)
	}
}

// TestCase_c106_rewrittenAtBoot: all containers have died with the agent away, and an installer rewrites the manifests shortly before
// or after the agent's start.
func (n *node) TestCase_c106_rewrittenAtBoot(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run("a second "+when+" the start", func(t *testing.T) {
			n := restarted(t, n)
			pods := []shell{{name: "c106-a", version: when, grace: 2}, {name: "c106-b", version: when, grace: 2}, {name: "c106-c", version: when, grace: 2}}
			rewrite := func() {
				for _, s := range pods {
					n.put(t, s.name+".yaml", s.String())
				}
			}
			rewrite()
			n.Start()
			var old []*v1.Pod
			for _, s := range pods {
				old = append(old, n.up(t, s, patience))
			}
			n.stop(t)
			reboot(t, n)
			pods[2].version = "changed " + when
			if when == "before" {
				rewrite()
				pause(t, time.Second)
				n.Start()
			} else {
				n.Start()
				pause(t, time.Second)
				rewrite()
			}
			for _, s := range pods {
				n.up(t, s, patience)
			}
			n.gone(t, old[2], patience)
			for _, s := range pods {
				once(t, n, s.on())
				never(t, n.seen.ran(t, s.on(), 2))
			}
			n.stop(t)
		})
	}
}

// reboot kills all containers and sandboxes, and waits until the runtime knows.
func reboot(t *testing.T, n *node) {
	t.Helper()
	for _, c := range containers(t, n.cri, "") {
		if pid := pidOf(t, n, c.GetId()); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	for _, s := range sandboxes(t, n.cri, "") {
		if pid := pidIn(t, sandboxStatus(t, n.cri, s.GetId()).GetInfo()); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the same
		}
	}
	agent.Eventually(t, patience, "everything has died", func() error {
		for _, s := range sandboxes(t, n.cri, "") {
			if s.GetState() == cri.PodSandboxState_SANDBOX_READY {
				return fmt.Errorf("sandbox %s is ready", s.GetMetadata().GetName())
			}
		}
		for _, c := range containers(t, n.cri, "") {
			if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
				return fmt.Errorf("container %s runs", c.GetLabels()[labelPod])
			}
		}
		return nil
	})
}

// once wants one ready sandbox and one running container of a pod.
func once(t *testing.T, n *node, pod string) {
	t.Helper()
	readySandboxes, running := 0, 0
	for _, s := range sandboxes(t, n.cri, pod) {
		if s.GetState() == cri.PodSandboxState_SANDBOX_READY {
			readySandboxes++
		}
	}
	for _, c := range containers(t, n.cri, pod) {
		if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			running++
		}
	}
	if readySandboxes != 1 || running != 1 {
		t.Errorf("%s has %d ready sandboxes and %d running containers", pod, readySandboxes, running)
	}
}

func (n *node) TestCase_c107_directoryGoneAndBack(t *testing.T) {
	pods := []shell{{name: "c107-a", grace: 2}, {name: "c107-b", grace: 2}, {name: "c107-c", grace: 2}}
	for _, s := range pods {
		n.put(t, s.name+".yaml", s.String())
	}
	n.Start()
	for _, s := range pods {
		n.up(t, s, patience)
	}
	away := n.Manifests + ".away"
	rename(t, n.Manifests, away)
	t.Log(n.says(t, "level=ERROR", "cannot be read", "keep running"))
	pause(t, 5*time.Second)
	untouched(t, n, pods)
	rename(t, away, n.Manifests)
	n.says(t, "is back", n.Manifests)
	late := shell{name: "c107-late", grace: 1}
	n.put(t, "late.yaml", late.String())
	n.up(t, late, patience)
	untouched(t, n, pods)

	// An empty directory is another thing, after a while: this one is on the same file system.
	n.take(t, "late.yaml")
	for _, s := range pods {
		n.take(t, s.name+".yaml")
	}
	agent.Eventually(t, patience, "all pods are removed", func() error {
		all, err := n.Pods(t.Context())
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("there are %d", len(all))
		}
		return err
	})
}

// untouched wants each pod to run in its first and only container, as /pods says too.
func untouched(t *testing.T, n *node, pods []shell) {
	t.Helper()
	for _, s := range pods {
		p, err := n.Pod(t.Context(), "default", s.on())
		if err == nil {
			err = ready(p)
		}
		if ran := n.seen.ran(t, s.on(), 1); err != nil || len(ran) != 1 || !ran[0].finished.IsZero() || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: %v; its containers are %+v", s.on(), err, ran)
		}
	}
}

func (n *node) TestCase_c107_directoryMissingAtStart(t *testing.T) {
	pods := []shell{{name: "c107-d", grace: 2}, {name: "c107-e", grace: 2}}
	for _, s := range pods {
		n.put(t, s.name+".yaml", s.String())
	}
	n.Start()
	for _, s := range pods {
		n.up(t, s, patience)
	}
	n.stop(t)
	away := n.Manifests + ".away"
	rename(t, n.Manifests, away)
	n.Start()
	n.says(t, "level=ERROR", "cannot be read", "nothing on this node is cleaned up")
	n.Ready()
	pause(t, 5*time.Second)
	for _, s := range pods {
		once(t, n, s.on())
	}
	rename(t, away, n.Manifests)
	for _, s := range pods {
		n.up(t, s, patience)
	}
	untouched(t, n, pods)
}
