package samemessages

import (
	"bytes"
	"flag"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kubeletkit/kubeletkit/internal/podcases"
	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/cluster"
)

var keep = flag.String("keep", "", "directory that gets the texts of both agents")

// Both agents tell a runtime the same of every pod, or say why not.
func TestSameMessages(t *testing.T) {
	cases, err := podcases.All()
	must(t, err)
	cases = slices.DeleteFunc(cases, func(c *podcases.Case) bool { return c.Needs != "" })
	compare(t, nil, slices.Concat(cases, asFiles(cases), ofVolumes(t)))
}

// And so they do with other settings than those of old.
func TestSameMessagesWithOtherSettings(t *testing.T) {
	about := []string{
		"smallest", "cpu-and-memory", "pod-level-only", "overhead-of-burstable", "seccomp", "user-namespace", "m23-coredns", "m24-names", "dns-more",
		"hostname-and-domain", "m12-csi-driver", "m16-volumes-of-objects",
	}
	cases, err := podcases.All()
	must(t, err)
	cases = slices.DeleteFunc(cases, func(c *podcases.Case) bool { return !slices.Contains(about, c.Name) })
	for name, settings := range map[string]map[string]any{
		"no CPU quota": {
			"cpuCFSQuota": false, "seccompDefault": true, "singleProcessOOMKill": true, "clusterDNS": nil, "userNamespaces": map[string]any{"idsPerPod": 131072},
		},
		"no resolver": {"resolvConf": "", "clusterDomain": ""},
	} {
		t.Run(name, func(t *testing.T) { compare(t, settings, cases) })
	}
}

// upstream is the file of the real kubelet, which is built when it is not there.
func upstream(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an agent needs root")
	}
	must(t, cluster.EnsurePrograms(t.Context(), os.Stderr, "kubelet"))
	return filepath.Join(bed.BinDir(), "kubelet")
}

// compare has both agents run the pods.
func compare(t *testing.T, settings map[string]any, cases []*podcases.Case) {
	t.Helper()
	kubelet := upstream(t)
	var theirs, ours *stage
	var refused [2]map[string]string
	var files [2][]string
	t.Run("agents", func(t *testing.T) { // both at once
		theirs, ours = setUp(t, kubelet, settings, cases), setUp(t, agent.Program(t), settings, cases)
		theirs.give(cases)
		ours.give(cases)
		var both sync.WaitGroup
		both.Go(func() { refused[0] = theirs.wait(t.Context(), cases) })
		both.Go(func() { refused[1] = ours.wait(t.Context(), cases) })
		both.Wait()
		for _, c := range cases {
			made := refused[0][c.Name] == ""
			files[0], files[1] = append(files[0], theirs.files(t, c, made)), append(files[1], ours.files(t, c, made))
		}
	})
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			want, got := theirs.text(t, c, refused[0]), ours.text(t, c, refused[1])
			if *keep != "" {
				must(t, os.WriteFile(filepath.Join(*keep, c.Name+".kubelet"), []byte(want+files[0][i]), 0o644))
				must(t, os.WriteFile(filepath.Join(*keep, c.Name+".nodeagent"), []byte(got+files[1][i]), 0o644))
			}
			want, got = allowed(c, want, got)
			if diff := diff(t, want, got); diff != "" {
				t.Errorf("the kubelet (-) and nodeagent (+) differ:\n%s", diff)
			}
			if diff := diff(t, files[0][i], files[1][i]); diff != "" {
				t.Errorf("the files of the kubelet (-) and nodeagent (+) differ:\n%s", diff)
			}
		})
	}
}

// text is what the agent told the runtime of a case's pod, and at last why it went no further.
func (s *stage) text(t *testing.T, c *podcases.Case, refused map[string]string) string {
	t.Helper()
	uid := string(s.record.UID(c.Pod.Namespace, c.Pod.Name))
	text, err := s.record.Text(c.Pod.Namespace, c.Pod.Name, s.path("root"), "ROOT", s.path("logs"), "LOGS", s.cgroup, "CGROUP", uid, "UID")
	must(t, err)
	if why := refused[c.Name]; why != "" {
		text += "--- # " + why + "\n"
	}
	return text
}

// diff is what diff(1) says of two texts.
func diff(t *testing.T, want, got string) string {
	t.Helper()
	if want == got {
		return ""
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"kubelet": want, "nodeagent": got} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	cmd := exec.Command("diff", "-U", "4", "kubelet", "nodeagent")
	cmd.Dir = dir
	out, _ := cmd.Output() // it fails where they differ
	return string(out)
}

func bytesLines(data []byte) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range bytes.Lines(data) {
			if !yield(strings.Fields(string(line))) {
				return
			}
		}
	}
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
