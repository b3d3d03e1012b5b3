package inside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
)

// patience is how long anything may take that takes seconds on an idle machine.
const patience = 2 * time.Minute

// look is a pod of one container that says something of itself, and what it must say.
type look struct {
	rule   string
	spec   string   // of the pod beside its container, in lines of YAML
	fields string   // of the container, in lines of YAML
	script string   // END is printed behind it
	want   []string // expressions, each of which a line of the log must match; after a ! none must
	refuse string   // in place of all that: the message of a container that is not made
}

const image = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"

func indent(text, by string) string {
	text = strings.Trim(text, "\n")
	if text == "" {
		return ""
	}
	return by + strings.ReplaceAll(text, "\n", "\n"+by) + "\n"
}

func (l look) manifest(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n%s  containers:\n  - name: c\n    image: %s\n    command: [sh, -c, 'eval \"$SCRIPT\"; echo END; exec sleep 1d']\n%s    env:\n    - {name: WHO, value: me}\n    - name: SCRIPT\n      value: |\n%s",
		name, indent(l.spec, "  "), image, indent(l.fields, "    "), indent(strings.ReplaceAll(l.script, "$(", "$$("), "        "))
}

func TestFromWithin(t *testing.T) {
	a := newAgent(t)
	host := prepare(t, a)
	a.Start()
	a.Ready()
	var all sync.WaitGroup
	for i, l := range looks(host) {
		name := fmt.Sprintf("p%02d", i)
		a.Write(name+".yaml", l.manifest(name))
		all.Go(func() {
			t.Run(l.rule, func(t *testing.T) {
				if l.refuse != "" {
					refused(t, a, name, l.refuse)
					return
				}
				l.check(t, said(t, a, name, 0))
			})
		})
	}
	all.Wait()
}

// newAgent makes an agent on a containerd of its own; it is not started.
func newAgent(t *testing.T) *agent.Agent {
	t.Helper()
	b := bed.Private(t)
	a := agent.New(t, b.Endpoint(), "--cluster-dns=192.0.2.53", "--cluster-domain=cluster.example.invalid")
	// Root of a user namespace is nobody where its root file system lies, and must get there.
	if err := os.Chmod(filepath.Dir(strings.TrimPrefix(b.Endpoint(), "unix://")), 0o711); err != nil { //nolint:gosec // for a test
		t.Fatal(err)
	}
	t.Cleanup(func() { clean(t, a, b) })
	return a
}

// A pod keeps its IDs when the agent is killed and its container ends, and no other pod gets them.
func TestRangesOutliveTheAgent(t *testing.T) {
	a := newAgent(t)
	a.Start()
	a.Ready()
	l := look{spec: "hostUsers: false", script: "cat /proc/self/uid_map /proc/self/gid_map; echo END; sleep 5; exit 0"}
	a.Write("old.yaml", l.manifest("old"))
	first := said(t, a, "old", 0)
	a.Kill()
	a.Write("new.yaml", l.manifest("new"))
	a.Start()
	if again := said(t, a, "old", 1); again != first {
		t.Errorf("the pod had\n%s\nand has\n%s", first, again)
	}
	if other := said(t, a, "new", 0); other == first {
		t.Errorf("two pods have\n%s", other)
	}
}

// clean removes the pods, and what was mounted for them.
func clean(t *testing.T, a *agent.Agent, b *bed.Bed) {
	t.Helper()
	a.Kill()
	if err := b.RemovePods(context.Background()); err != nil {
		t.Error(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], a.Root+"/") {
			_ = syscall.Unmount(f[4], syscall.MNT_DETACH) // one that stays is told of with its directory
		}
	}
}

// prepare makes what pods see of this machine: a directory that shares its mounts, one mounted in it, and links.
func prepare(t *testing.T, a *agent.Agent) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "host")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o755))
	must(syscall.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	must(syscall.Mount("", dir, "", syscall.MS_SHARED, ""))
	below := filepath.Join(dir, "below")
	must(os.Mkdir(below, 0o755))
	must(syscall.Mount("tmpfs", below, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = syscall.Unmount(below, syscall.MNT_DETACH) })
	must(os.Mkdir(filepath.Join(dir, "real"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "real", "file"), []byte("content\n"), 0o644))
	must(os.Symlink("real", filepath.Join(dir, "in")))
	must(os.Symlink("/etc", filepath.Join(dir, "out")))
	must(os.Symlink("../../../../etc", filepath.Join(dir, "real", "up")))
	profiles := filepath.Join(a.Root, "seccomp", "own")
	must(os.MkdirAll(profiles, 0o755))
	must(os.WriteFile(filepath.Join(profiles, "nodir.json"),
		[]byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`), 0o644))
	return dir
}

// said is what an instance of the container of a pod has said, once it has said all.
func said(t *testing.T, a *agent.Agent, pod string, instance int) (text string) {
	t.Helper()
	agent.Eventually(t, patience, "the log of "+pod, func() error {
		files, err := filepath.Glob(filepath.Join(a.Logs, "default_"+pod+"-"+agent.Node+"_*", "c", fmt.Sprint(instance, ".log")))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("%d log files; %s", len(files), states(t, a, pod))
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			return err
		}
		var lines []string
		for line := range strings.Lines(string(data)) {
			if f := strings.SplitN(strings.TrimRight(line, "\r\n"), " ", 4); len(f) == 4 { // time, stream, tag, text
				lines = append(lines, strings.TrimRight(f[3], "\r"))
			}
		}
		if len(lines) == 0 || lines[len(lines)-1] != "END" {
			return errors.New("it has not said all; " + states(t, a, pod))
		}
		text = strings.Join(lines, "\n")
		return nil
	})
	return text
}

func states(t *testing.T, a *agent.Agent, pod string) string {
	t.Helper()
	p, err := a.Pod(t.Context(), "default", pod+"-"+agent.Node)
	if err != nil {
		return err.Error()
	}
	out := string(p.Status.Phase) + " " + p.Status.Reason + " " + p.Status.Message
	for _, c := range p.Status.ContainerStatuses {
		out += fmt.Sprintf(" %+v", c.State)
	}
	return out
}

// refused waits for the reason of a container that is not made.
func refused(t *testing.T, a *agent.Agent, pod, why string) {
	t.Helper()
	agent.Eventually(t, patience, "the refusal of "+pod, func() error {
		p, err := a.Pod(t.Context(), "default", pod+"-"+agent.Node)
		if err != nil {
			return err
		}
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, why) {
				return nil
			}
		}
		return errors.New(states(t, a, pod))
	})
}

func (l look) check(t *testing.T, text string) {
	t.Helper()
	for _, w := range l.want {
		expression, not := strings.CutPrefix(w, "!")
		if regexp.MustCompile("(?m)^"+expression+"$").MatchString(text) == not {
			t.Errorf("want %s in\n%s", w, text)
		}
	}
}

// namespace is that of this process.
func namespace(name string) string {
	link, err := os.Readlink("/proc/self/ns/" + name)
	if err != nil {
		return err.Error()
	}
	return regexp.QuoteMeta(link)
}
