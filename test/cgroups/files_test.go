package cgroups

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
)

// What the kernel's files say while pods of each class run, over a restart of the agent, and when they are gone.
func TestFiles(t *testing.T) {
	n := newNode(t, bed.ForTest(t), "--pod-max-pids=100", "--system-reserved=cpu=100m,memory=512Mi,pid=1000", "--kube-reserved=cpu=50m,memory=256Mi,pid=500")
	before := say(n.Cgroup)
	whole := podOf("whole", "cpu=10m")
	whole.Spec.Resources = new(sizes("cpu=30m cpu<60m memory=16Mi memory<48Mi"))
	class := podOf("class", "cpu=20m cpu<40m memory<32Mi")
	class.Spec.Overhead = sizes("cpu=10m memory=8Mi").Requests
	first := podOf("first", "cpu=20m")
	first.Spec.InitContainers = []v1.Container{first.Spec.Containers[0]}
	first.Spec.InitContainers[0].Name, first.Spec.InitContainers[0].Command, first.Spec.InitContainers[0].Resources = "i", []string{"true"}, sizes("cpu=70m")
	pods := map[*v1.Pod]string{
		podOf("guaranteed", "cpu<50m memory<16Mi", "cpu<50m memory<32Mi"):             "shares 102 quota 10000 memory 50331648 pids 100",
		podOf("limited", "cpu=20m cpu<50m memory<16Mi", "cpu=10m cpu<50m memory<8Mi"): "shares 30 quota 10000 memory 25165824 pids 100",
		podOf("partly", "cpu=20m cpu<50m memory<16Mi", "cpu=10m"):                     "shares 30 quota - memory - pids 100",
		podOf("nothing", ""): "shares 2 quota - memory - pids 100",
		whole:                "shares 30 quota 6000 memory 50331648 pids 100",
		class:                "shares 30 quota 5000 memory 41943040 pids 100",
		first:                "shares 71 quota - memory - pids 100",
	}
	for p := range pods {
		for i := range p.Spec.Containers { // an API server does so
			r := &p.Spec.Containers[i].Resources
			for name, q := range r.Limits {
				if _, asked := r.Requests[name]; !asked {
					if r.Requests == nil {
						r.Requests = v1.ResourceList{}
					}
					r.Requests[name] = q
				}
			}
		}
	}
	want := map[string]string{}
	for p, text := range pods {
		want[p.Name] = text
	}
	var all []*v1.Pod
	for _, p := range slices.SortedFunc(maps.Keys(pods), func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) }) {
		all = append(all, n.create(p))
	}
	n.Start()
	all = n.ready(all...)

	memory := machine(t, "/proc/meminfo")
	pids := min(number(t, "/proc/sys/kernel/pid_max"), number(t, "/proc/sys/kernel/threads-max"))
	cores := strings.Count(read(t, "/proc/cpuinfo"), "processor\t")
	look := func(when string) {
		t.Helper()
		for _, p := range all {
			if got := say(n.of(p)); got != want[p.Name] {
				t.Errorf("%s: pod %s has %s, want %s", when, p.Name, got, want[p.Name])
			}
		}
		kubepods := n.Cgroup + "/kubepods"
		root := fmt.Sprintf("shares %d quota - memory %d pids %d", (cores*1000-150)*1024/1000, memory-768<<20, pids-1500)
		agent.Eventually(t, patience, when+": the classes have what they are to have", func() error {
			for at, text := range map[string]string{
				n.Cgroup: before, kubepods: root, kubepods + "/burstable": "shares 194 quota - memory - pids -", kubepods + "/besteffort": "shares 2 quota - memory - pids -",
			} {
				if got := say(at); got != text {
					return fmt.Errorf("%s has %s, want %s", at, got, text)
				}
			}
			return nil
		})
	}
	look("at first")
	ids := map[string]string{}
	for _, p := range all {
		for id, c := range n.instances(p) {
			ids[id] = p.Name + "/" + c.GetMetadata().GetName()
			if c.GetMetadata().GetName() != "i" && has("memory", n.of(p)+"/"+id, "cgroup.procs") == "" {
				t.Errorf("nothing of %s runs in the cgroup of its pod", ids[id])
			}
		}
	}
	if len(ids) < len(all)+2 {
		t.Errorf("containers: %v", ids)
	}

	n.Kill()
	for _, p := range all[:2] { // somebody has written over it
		if err := os.WriteFile(filepath.Join(cgroups.Mount, "memory", n.of(p), "memory.limit_in_bytes"), []byte("12582912"), 0); err != nil {
			t.Error(err)
		}
	}
	n.Start()
	n.Ready()
	agent.Eventually(t, patience, "values are written again", func() error {
		for _, p := range all {
			if got := say(n.of(p)); got != want[p.Name] {
				return fmt.Errorf("pod %s has %s, want %s", p.Name, got, want[p.Name])
			}
		}
		return nil
	})
	look("after a restart")
	for _, p := range all {
		for id, c := range n.instances(p) {
			if ids[id] != p.Name+"/"+c.GetMetadata().GetName() {
				t.Errorf("%s of %s is new", id, p.Name)
			}
		}
	}

	stray := n.stray(all[0])
	n.end(all...)
	n.empty()
	if err := stray.Wait(); err == nil {
		t.Error("what was left in the cgroup of a pod lives on")
	}
	agent.Eventually(t, patience, "the burstable weigh nothing", func() error {
		if got := has("cpu", n.Cgroup+"/kubepods/burstable", "cpu.shares"); got != "2" {
			return fmt.Errorf("shares are %s", got)
		}
		return nil
	})
}

// stray is a process in the cgroup of a pod that no container has.
func (n *node) stray(p *v1.Pod) *exec.Cmd {
	n.t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	for _, controller := range []string{"memory", "pids", "systemd"} {
		dir := filepath.Join(cgroups.Mount, controller, n.of(p), "stray")
		if err := os.Mkdir(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			n.t.Fatal(err)
		}
	}
	return cmd
}

// A pod that makes processes without end is stopped at its limit, and nobody else notices.
func TestProcessesOfAPodAreLimited(t *testing.T) {
	n := newNode(t, bed.ForTest(t), "--pod-max-pids=30")
	p := podOf("bomb", "")
	p.Spec.Containers[0].Command = []string{"sh", "-c", "while :; do sleep 1d & sleep 0.01; done"}
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p = n.create(p)
	n.Start()
	agent.Eventually(t, patience, "a process was refused", func() error {
		is := n.now(p)
		if is.Status.QOSClass == "" {
			return fmt.Errorf("it is %s", is.Status.Phase)
		}
		text := has("pids", n.of(is), "pids.events")
		if count, err := strconv.Atoi(strings.TrimPrefix(text, "max ")); err == nil && count > 0 || is.Status.Phase == v1.PodFailed {
			return nil
		}
		return fmt.Errorf("pids.events: %s", text)
	})
	n.end(p)
	n.empty()
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func number(t *testing.T, path string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(read(t, path)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// machine is the memory of this machine in bytes.
func machine(t *testing.T, path string) int64 {
	t.Helper()
	_, text, _ := strings.Cut(read(t, path), "MemTotal:")
	kib, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
