package firstlight

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

const badManifests = "testdata/bad-manifests"

// verdict is a line of expected.tsv.
type verdict struct{ file, outcome, reason string }

func verdicts(t *testing.T) (list []verdict) {
	t.Helper()
	for lines := bufio.NewScanner(strings.NewReader(read(t, filepath.Join(badManifests, "expected.tsv")))); lines.Scan(); {
		f := strings.Split(lines.Text(), "\t")
		if len(f) != 3 {
			t.Fatalf("line %q", lines.Text())
		}
		list = append(list, verdict{f[0], f[1], f[2]})
	}
	return list
}

// accepted are the pods of accepted files, by file: namespace and name.
func accepted() map[string][2]string {
	return map[string][2]string{
		"22-bom-crlf.yaml":            {"default", "bom-crlf-node"},
		"23-pod.json":                 {"default", "json-pod-node"},
		"32-envsubst-unrendered.yaml": {"default", "envsubst-node"},
		"46-uid-collision-a.yaml":     {"default", "uid-same-a-node"},
		"49-forged-source.yaml":       {"default", "forged-source-node"},
		"50-foreign-node.yaml":        {"default", "foreign-node-node"},
		"51-same-name-ns-a.yaml":      {"team-a", "twin-node"},
		"52-same-name-ns-b.yaml":      {"team-b", "twin-node"},
	}
}

// refused are files that are read and whose pods are not admitted: name and reason.
func refused() map[string][2]string {
	return map[string][2]string{
		"84-unsafe-sysctl.yaml":    {"sysctl-node", "SysctlForbidden"},
		"85-windows-on-linux.yaml": {"win-node", "PodOSNotSupported"},
	}
}

// Each file of testdata/bad-manifests comes to what expected.tsv says, singly and all together, and a good pod beside
// them never notices.
func TestBadManifests(t *testing.T) {
	b := private(t)
	t.Run("singly", func(t *testing.T) {
		good := shell{name: "good", grace: 1}
		n := newNode(t, b)
		n.put(t, "good.yaml", good.String())
		n.Start()
		n.up(t, good, patience)
		before := n.peak(t)
		for _, v := range verdicts(t) {
			t.Run(v.file, func(t *testing.T) {
				began := time.Now()
				lay(t, n, v.file)
				judge(t, n, v)
				took := time.Since(began)
				if took > 30*time.Second {
					t.Errorf("it took %v", took)
				}
				takeAway(t, n, v.file)
				t.Logf("%s after %v: %s", v.outcome, took.Round(time.Millisecond), v.reason)
			})
		}
		unmoved(t, n, good, before)
		n.stop(t)
	})
	t.Run("all together", func(t *testing.T) {
		if err := b.RemovePods(t.Context()); err != nil {
			t.Fatal(err)
		}
		good := shell{name: "steady", grace: 1} // a name of its own: the runtime may still tell of the end of the other
		n := newNode(t, b)
		n.put(t, "good.yaml", good.String())
		n.Start()
		n.up(t, good, patience)
		before := n.peak(t)
		began := time.Now()
		all := verdicts(t)
		for _, v := range all {
			lay(t, n, v.file)
		}
		for _, v := range all {
			judge(t, n, v)
		}
		t.Logf("%d files after %v", len(all), time.Since(began).Round(time.Millisecond))
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		loud(t, n)
		unmoved(t, n, good, before)
		for _, v := range all {
			takeAway(t, n, v.file)
		}
		pods, err := n.Pods(t.Context())
		if err != nil || len(pods) != 1 {
			t.Errorf("%d pods are left, %v", len(pods), err)
		}
		unmoved(t, n, good, before)
		n.stop(t)
	})
}

// lay puts a file of the test data into the manifest directory. Its directories come too.
func lay(t *testing.T, n *node, file string) {
	t.Helper()
	text := read(t, filepath.Join(badManifests, file))
	replace(t, filepath.Join(n.Manifests, file), text)
}

// takeAway takes it away again and waits until its pod is gone.
func takeAway(t *testing.T, n *node, file string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(n.Manifests, entryOf(file))); err != nil {
		t.Fatal(err)
	}
	name, ok := accepted()[file]
	if r, is := refused()[file]; is {
		name, ok = [2]string{"default", r[0]}, true
	}
	if !ok {
		return
	}
	agent.Eventually(t, patience, file+": its pod is gone", func() error {
		if _, err := n.Pod(t.Context(), name[0], name[1]); err == nil {
			return errors.New("it is in /pods")
		}
		for _, s := range sandboxes(t, n.cri, name[1]) {
			if s.GetMetadata().GetNamespace() == name[0] {
				return errors.New("it has a sandbox")
			}
		}
		return nil
	})
}

// entryOf is the name that stands in the directory itself.
func entryOf(file string) string {
	name, _, _ := strings.Cut(file, "/")
	return name
}

// judge waits for the outcome of a file.
func judge(t *testing.T, n *node, v verdict) {
	t.Helper()
	told := func() []string { return n.logged("file="+filepath.Join(n.Manifests, entryOf(v.file))+" ", "refused") }
	pod := accepted()[v.file]
	switch {
	case v.outcome == "accepted":
		p := n.runs(t, pod[0], pod[1], "is there", patience, func(p *v1.Pod) error {
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil || p.Status.ContainerStatuses[0].State.Waiting.Reason == "ContainerCreating" {
				return errors.New("has not come as far as its image")
			}
			return nil
		})
		acceptable(t, p, v.file)
		if lines := told(); len(lines) > 0 {
			t.Errorf("%s is refused: %v", v.file, lines)
		}
	case v.outcome == "ignored":
		beacon(t, n)
		if lines := n.logged(filepath.Join(n.Manifests, v.file)); len(lines) > 0 {
			t.Errorf("%s is spoken of: %v", v.file, lines)
		}
		if lines := told(); strings.Contains(v.file, "/") != (len(lines) == 1) {
			t.Errorf("%s: its entry is named %d times: %v", v.file, len(lines), lines)
		}
	case refused()[v.file] != [2]string{}:
		want := refused()[v.file]
		n.runs(t, "default", want[0], "is refused", patience, func(p *v1.Pod) error {
			if p.Status.Phase != v1.PodFailed || p.Status.Reason != want[1] || p.Status.Message == "" {
				return fmt.Errorf("is not Failed with %s", want[1])
			}
			return nil
		})
		if boxes := sandboxes(t, n.cri, want[0]); len(boxes) > 0 {
			t.Errorf("%s has a sandbox", v.file)
		}
	case v.outcome == "rejected-with-error":
		agent.Eventually(t, patience, v.file+" is refused", func() error {
			if len(told()) == 0 {
				return errors.New("the log does not name it")
			}
			return nil
		})
		beacon(t, n)
		if lines := told(); len(lines) != 1 || !regexp.MustCompile(` err=\S{3,}`).MatchString(lines[0]) || len(lines[0]) > 800 {
			t.Errorf("%s is named %d times: %v", v.file, len(lines), lines)
		}
	default:
		t.Errorf("%s: nobody knows the outcome %q", v.file, v.outcome)
	}
}

// acceptable looks at what is particular to accepted files.
func acceptable(t *testing.T, p *v1.Pod, file string) {
	t.Helper()
	hash, seen := p.Annotations["kubernetes.io/config.hash"], p.Annotations["kubernetes.io/config.seen"]
	at, err := time.Parse(time.RFC3339Nano, seen)
	if err != nil || time.Since(at) > time.Hour || hash != string(p.UID) || p.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("%s: its annotations are %v", file, p.Annotations)
	}
	if p.Spec.NodeName != agent.Node {
		t.Errorf("%s: it is for node %s", file, p.Spec.NodeName)
	}
	waits := p.Status.ContainerStatuses[0].State.Waiting.Reason
	want := []string{"ErrImagePull", "ImagePullBackOff"}
	if file == "32-envsubst-unrendered.yaml" {
		want = []string{"InvalidImageName"}
	}
	if !slices.Contains(want, waits) {
		t.Errorf("%s: its container waits with %s", file, waits)
	}
	if own := p.UID == "0f0f0f0f-0000-4000-8000-000000000001"; own != (file == "46-uid-collision-a.yaml") {
		t.Errorf("%s: its uid is %s", file, p.UID)
	}
}

// beacon returns when the agent has looked at everything that was there before, and has made up its mind.
func beacon(t *testing.T, n *node) {
	t.Helper()
	name := fmt.Sprintf("beacon-%d.txt", time.Now().UnixNano())
	n.put(t, name, "kind: Beacon\n")
	n.says(t, "refused", name)
	n.take(t, name)
}

// loud tells when the agent repeats itself about a pod that cannot start.
func loud(t *testing.T, n *node) {
	t.Helper()
	count := func() int { return len(n.logged("envsubst-node", "level=")) }
	before := count()
	pause(t, 5*time.Second)
	if more := count() - before; more > 3 {
		t.Errorf("five seconds bring %d lines about an image name that is wrong", more)
	}
	if bad := regexp.MustCompile(`[^\t\n\x20-\x7e\x{80}-\x{10ffff}]`).FindString(n.Log()); bad != "" {
		t.Errorf("the log has the control character %q", bad)
	}
}

// unmoved wants the good pod to be as it was, and the agent no larger than it may be.
func unmoved(t *testing.T, n *node, good shell, before int64) {
	t.Helper()
	ran := n.seen.ran(t, good.on(), 1)
	p, err := n.Pod(t.Context(), "default", good.on())
	if err == nil {
		err = ready(p)
	}
	if err != nil || len(ran) != 1 || !ran[0].finished.IsZero() {
		t.Errorf("the good pod: %v; its containers are %+v", err, ran)
	}
	most := n.peak(t)
	t.Logf("memory %d MiB, at most %d MiB, before %d MiB", n.rss(t)>>20, most>>20, before>>20)
	if most > before+64<<20 {
		t.Errorf("the agent grew from %d to %d MiB", before>>20, most>>20)
	}
}
