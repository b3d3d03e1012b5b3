package firstlight

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/images"
)

// TestIdentities compares each sandbox and container with what a kubelet would have written.
func (n *node) TestIdentities(t *testing.T) {
	for _, name := range []string{"web-node", "init-node", "job-node"} {
		p, err := n.Pod(t.Context(), "default", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			boxes := sandboxes(t, n.cri, name)
			if len(boxes) != 1 {
				t.Fatalf("%d sandboxes", len(boxes))
			}
			sandboxIdentity(t, n, p, boxes[0].GetId())
			made := containers(t, n.cri, name)
			if want := len(p.Spec.InitContainers) + len(p.Spec.Containers); len(made) != want {
				t.Errorf("%d containers, want %d", len(made), want)
			}
			for _, c := range made {
				containerIdentity(t, n, p, c.GetId())
			}
		})
	}
}

func sandboxIdentity(t *testing.T, n *node, p *v1.Pod, id string) {
	t.Helper()
	a := sandboxStatus(t, n.cri, id)
	s := a.GetStatus()
	uid := string(p.UID)
	address := p.Status.PodIP
	if s.GetState() != cri.PodSandboxState_SANDBOX_READY {
		address = "" // a pod that has ended keeps its address in the status only
	}
	for what, c := range map[string][2]any{
		"name":      {s.GetMetadata().GetName(), p.Name},
		"namespace": {s.GetMetadata().GetNamespace(), "default"},
		"uid":       {s.GetMetadata().GetUid(), uid},
		"attempt":   {s.GetMetadata().GetAttempt(), uint32(0)},
		"address":   {s.GetNetwork().GetIp(), address},
		"handler":   {s.GetRuntimeHandler(), ""},
		"pid":       {s.GetLinux().GetNamespaces().GetOptions().GetPid(), cri.NamespaceMode_CONTAINER},
		"network":   {s.GetLinux().GetNamespaces().GetOptions().GetNetwork(), cri.NamespaceMode_POD},
	} {
		if c[0] != c[1] {
			t.Errorf("sandbox: %s is %v, want %v", what, c[0], c[1])
		}
	}
	labels := map[string]string{labelPod: p.Name, labelNamespace: "default", labelUID: uid}
	maps.Copy(labels, p.Labels)
	if !maps.Equal(s.GetLabels(), labels) {
		t.Errorf("sandbox: labels are %v, want %v", s.GetLabels(), labels)
	}
	if !maps.Equal(s.GetAnnotations(), p.Annotations) || s.GetAnnotations()["kubernetes.io/config.source"] != "file" ||
		s.GetAnnotations()["kubernetes.io/config.hash"] != uid || s.GetAnnotations()["kubernetes.io/config.seen"] == "" {
		t.Errorf("sandbox: annotations are %v, the pod's are %v", s.GetAnnotations(), p.Annotations)
	}
	if dir := fmt.Sprintf("%s/default_%s_%s", n.Logs, p.Name, uid); !strings.Contains(a.GetInfo()["info"], fmt.Sprintf("%q", dir)) {
		t.Errorf("sandbox: its log directory is not %s: %s", dir, a.GetInfo()["info"])
	}
	if len(uid) != 32 || strings.Trim(uid, "0123456789abcdef") != "" {
		t.Errorf("uid %s is no hash as a kubelet writes it", uid)
	}
}

func containerIdentity(t *testing.T, n *node, p *v1.Pod, id string) {
	t.Helper()
	a := containerStatus(t, n.cri, id)
	s := a.GetStatus()
	name := s.GetMetadata().GetName()
	spec := specOf(t, p, name)
	uid := string(p.UID)
	labels := map[string]string{labelPod: p.Name, labelNamespace: "default", labelUID: uid, labelContainer: name}
	if !maps.Equal(s.GetLabels(), labels) {
		t.Errorf("%s: labels are %v, want exactly %v", name, s.GetLabels(), labels)
	}
	// The hash may be any; the ports are compared by their place only.
	notes := maps.Clone(s.GetAnnotations())
	if !regexp.MustCompile("^[0-9a-f]{1,8}$").MatchString(notes["io.kubernetes.container.hash"]) {
		t.Errorf("%s: hash is %q", name, notes["io.kubernetes.container.hash"])
	}
	want := map[string]string{
		"io.kubernetes.container.hash":                     notes["io.kubernetes.container.hash"],
		"io.kubernetes.container.restartCount":             "0",
		"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
		"io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.pod.terminationGracePeriod":         fmt.Sprint(*p.Spec.TerminationGracePeriodSeconds),
	}
	if len(spec.Ports) > 0 {
		want["io.kubernetes.container.ports"] = `[{"name":"http","containerPort":8080,"protocol":"TCP"}]`
	}
	if !maps.Equal(notes, want) {
		t.Errorf("%s: annotations are %v, want %v", name, notes, want)
	}
	log := fmt.Sprintf("%s/default_%s_%s/%s/0.log", n.Logs, p.Name, uid, name)
	if s.GetMetadata().GetAttempt() != 0 || s.GetLogPath() != log || s.GetImage().GetImage() != spec.Image {
		t.Errorf("%s: attempt %d, log %s, image %s; want 0, %s, %s", name, s.GetMetadata().GetAttempt(), s.GetLogPath(), s.GetImage().GetImage(), log, spec.Image)
	}
	if info, err := os.Stat(log); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%s: log: %v, %v", name, info, err)
	}
	link := filepath.Join(n.Links, fmt.Sprintf("%s_default_%s-%s.log", p.Name, name, id))
	if to, err := os.Readlink(link); err != nil || to != log {
		t.Errorf("%s: the link to its log is %s, %v; want %s", name, to, err, log)
	}
	mounts := map[string]string{}
	for _, m := range s.GetMounts() {
		mounts[m.GetContainerPath()] = m.GetHostPath()
	}
	dir := filepath.Join(n.Root, "pods", uid)
	if mounts["/etc/hosts"] != filepath.Join(dir, "etc-hosts") ||
		!regexp.MustCompile("^"+regexp.QuoteMeta(filepath.Join(dir, "containers", name))+"/[0-9a-f]{8}$").MatchString(mounts["/dev/termination-log"]) {
		t.Errorf("%s: its files are mounted from %v", name, mounts)
	}
}

func specOf(t *testing.T, p *v1.Pod, container string) *v1.Container {
	t.Helper()
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	i := slices.IndexFunc(all, func(c v1.Container) bool { return c.Name == container })
	if i < 0 {
		t.Fatalf("%s has no container %s", p.Name, container)
	}
	return &all[i]
}

// TestCrictl sees pods, containers and logs, and runs commands in them.
func (n *node) TestCrictl(t *testing.T) {
	pods := n.crictl(t, "pods", "--namespace", "default")
	for _, name := range []string{"web-node", "init-node", "job-node", "crashloop-node"} {
		if !regexp.MustCompile(`(?m)\b` + name + `\s+default\b`).MatchString(pods) {
			t.Errorf("crictl pods does not show %s:\n%s", name, pods)
		}
	}
	if out := n.crictl(t, "pods", "--label", "app=web", "-q"); len(strings.Fields(out)) != 1 {
		t.Errorf("crictl pods --label app=web finds %q", out)
	}
	all := n.crictl(t, "ps", "-a")
	for container, pod := range map[string]string{
		"web": "web-node", "sidekick": "web-node", "first": "init-node", "second": "init-node", "job": "job-node",
	} {
		if !regexp.MustCompile(`(?m)^\S+.*\b` + container + `\b.*\b` + pod + `\b`).MatchString(all) {
			t.Errorf("crictl ps -a does not show %s of %s:\n%s", container, pod, all)
		}
	}
	id := strings.TrimSpace(n.crictl(t, "ps", "-q", "--name", "^sidekick$"))
	if out := n.crictl(t, "exec", id, "cat", "/etc/hosts"); !strings.Contains(out, "web-node") {
		t.Errorf("crictl exec: %q", out)
	}
	if out := n.crictl(t, "logs", strings.TrimSpace(n.crictl(t, "ps", "-aq", "--name", "^job$"))); !strings.Contains(out, "step 10 of 10") {
		t.Errorf("crictl logs: %q", out)
	}
	if out := n.crictl(t, "images"); !strings.Contains(out, strings.Split(images.Busybox, ":")[0]) {
		t.Errorf("crictl images: %q", out)
	}
}
