//go:build cluster

package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/test/cluster"
)

// What users see of the same pods and node is the same under kubelet and nodeagent: the node's and pods' statuses, kubectl
// describe and events. What may differ is in testdata/differences.tsv. Both views are kept in the cluster's directory, golden.
func TestSameAsKubelet(t *testing.T) {
	views := map[cluster.Agent]map[string]string{}
	for _, a := range []cluster.Agent{cluster.Kubelet, cluster.NodeAgent} {
		t.Run(string(a), func(t *testing.T) { views[a] = viewUnder(t, a) })
	}
	f, err := os.Open("testdata/differences.tsv")
	check(t, err)
	defer f.Close()
	allowed, err := ReadAllowances(f)
	check(t, err)
	theirs, ours := views[cluster.Kubelet], views[cluster.NodeAgent]
	all := maps.Clone(theirs)
	maps.Copy(all, ours)
	if len(theirs) == 0 || len(ours) == 0 {
		t.FailNow()
	}
	for _, document := range slices.Sorted(maps.Keys(all)) {
		if left := Unexpected(document, Diff(theirs[document], ours[document]), allowed); len(left) > 0 {
			t.Errorf("%s differs (- kubelet, + nodeagent):\n%s", document, strings.Join(left, "\n"))
		}
	}
	for _, a := range allowed {
		if !a.Used {
			t.Logf("did not differ this time: %s, %s", a.Document, a.Line)
		}
	}
}

// viewUnder runs the pods of testdata/pods.yaml under an agent and returns what is seen, by document.
func viewUnder(t *testing.T, a cluster.Agent) map[string]string {
	t.Helper()
	n := bareNode(t)
	n.agent = a
	check(t, n.api.CoreV1().Nodes().Delete(t.Context(), cluster.NodeName, metav1.DeleteOptions{}))
	begun := metav1.NewTime(time.Now().Truncate(time.Second)) // as exact as events are
	n.start()
	n.ready()
	n.warm()
	_, err := n.Kubectl(t.Context(), "-n", n.ns, "apply", "-f", "testdata/pods.yaml")
	check(t, err)
	view := map[string]string{}
	seen, resting := map[string]bool{}, map[string]rest{}
	deadline := time.Now().Add(5 * patience) // the kubelet may tell late that a container waits
	for err := errors.New("not looked"); err != nil; time.Sleep(200 * time.Millisecond) {
		if err = n.lookAt(view, seen, resting); err != nil && time.Now().After(deadline) {
			t.Errorf("not all pods were as they should be at some time: %v", err) // the others are compared
			break
		}
	}
	time.Sleep(5 * time.Second) // events arrive later than what they tell of
	n.deleted("hooked")
	time.Sleep(2 * time.Second)
	n.events(view, n.ns, func(e v1.Event) string { return "events/" + e.InvolvedObject.Name }, func(e v1.Event) bool { return e.InvolvedObject.Kind == "Pod" && e.ReportingController == "kubelet" })
	n.events(view, "default", func(v1.Event) string { return "node-events" }, func(e v1.Event) bool {
		return e.InvolvedObject.Kind == "Node" && e.ReportingController != "node-controller" && !e.LastTimestamp.Before(&begun)
	})
	delete(view, "events/warm")
	delete(view, "events/warmer")
	n.nodeView(view)
	for document, text := range view {
		view[document] = Normal(text)
		file := n.Path("golden", string(a), Normal(document)[:len(Normal(document))-1])
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, []byte(view[document]), 0o644))
	}
	named := map[string]string{} // without made-up ends of names
	for document, text := range view {
		named[strings.TrimSpace(Normal(document))] = text
	}
	return named
}

// warm has the image there that the pods use: who comes first pulls it, and only one is. Containerd knows the digest of one
// only when it was pulled twice.
func (n *node) warm() {
	n.t.Helper()
	for _, name := range []string{"warm", "warmer"} {
		_, err := n.Kubectl(n.t.Context(), "-n", n.ns, "run", name, "--restart=Never", "--image-pull-policy=Always",
			"--image=registry.k8s.io/e2e-test-images/busybox:1.37.0-2", "--command", "--", "true")
		check(n.t, err)
		n.until("the image is there", func() error {
			p, err := n.api.CoreV1().Pods(n.ns).Get(n.t.Context(), name, metav1.GetOptions{})
			if err == nil && p.Status.Phase != v1.PodSucceeded {
				err = fmt.Errorf("the pod that wants it is %s", p.Status.Phase)
			}
			return err
		})
		n.deleted(name)
	}
}

// deleted deletes a pod and waits until it is gone.
func (n *node) deleted(name string) {
	n.t.Helper()
	p, err := n.api.CoreV1().Pods(n.ns).Get(n.t.Context(), name, metav1.GetOptions{})
	check(n.t, err)
	n.delete(name)
	n.gone(p)
}

// rest is since when a pod's object is as it is.
type rest struct {
	version string
	since   time.Time
}

// still is how long nothing may happen to a pod before it is looked at: statuses come in steps.
const still = 3 * time.Second

// lookAt keeps what is seen of each pod the first time it is as it should be, and has been for a while.
func (n *node) lookAt(view map[string]string, seen map[string]bool, resting map[string]rest) error {
	raw, err := n.api.CoreV1().RESTClient().Get().Namespace(n.ns).Resource("pods").Param("includeObject", "Object").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(n.t.Context()).Raw()
	if err != nil {
		return err
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		return err
	}
	var errs []error
	var found []*v1.Pod
	for _, row := range table.Rows {
		p := new(v1.Pod)
		if err := json.Unmarshal(row.Object.Raw, p); err != nil {
			return err
		}
		if resting[p.Name].version != p.ResourceVersion {
			resting[p.Name] = rest{p.ResourceVersion, time.Now()}
		}
		got, want := strings.TrimSpace(fmt.Sprintln(row.Cells[1:4]...)), p.Annotations["until"] // READY STATUS RESTARTS
		switch {
		case seen[p.Name]:
		case got != want && !strings.HasPrefix(got, want+" ") || p.Status.StartTime == nil:
			errs = append(errs, fmt.Errorf("%s is %q, not %q", p.Name, got, want))
		case p.Spec.RestartPolicy != v1.RestartPolicyAlways && stopped(p) && !over(p):
			errs = append(errs, fmt.Errorf("%s is %q, and not yet %s", p.Name, got, p.Status.Phase))
		case time.Since(resting[p.Name].since) < still:
			errs = append(errs, fmt.Errorf("%s is %q, but only just", p.Name, got))
		default:
			found = append(found, p)
		}
	}
	if len(table.Rows) < 29 {
		errs = append(errs, fmt.Errorf("there are %d pods", len(table.Rows)))
	}
	if err := n.look(view, found); err != nil {
		return err
	}
	for _, p := range found {
		seen[p.Name] = true
	}
	return errors.Join(errs...)
}

// stopped says that nothing of a pod runs or is going to.
func stopped(p *v1.Pod) bool {
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	failed := slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 })
	if failed && p.Spec.RestartPolicy == v1.RestartPolicyOnFailure {
		return false
	}
	going := slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Running != nil || s.State.Waiting != nil && !failed })
	return len(all) > 0 && !going
}

// over says that all of that is told, and that nothing of its sandbox is left.
func over(p *v1.Pod) bool {
	sandboxed := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReadyToStartContainers && c.Status == v1.ConditionTrue
	})
	return !sandboxed && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed)
}

// look keeps what is seen of pods, their restarts only if they were waited for.
func (n *node) look(view map[string]string, pods []*v1.Pod) error {
	if len(pods) == 0 {
		return nil
	}
	args := []string{"-n", n.ns, "describe", "--show-events=false", "pods"}
	for _, p := range pods {
		args = append(args, p.Name)
	}
	text, err := n.Kubectl(n.t.Context(), args...)
	if err != nil {
		return err
	}
	described := strings.Split(text, "\n\n\nName:")
	if len(described) != len(pods) {
		return fmt.Errorf("%d of %d pods are described", len(described), len(pods))
	}
	for i, p := range pods {
		p.ManagedFields, p.ResourceVersion = nil, ""
		data, err := json.MarshalIndent(map[string]any{"metadata": p.ObjectMeta, "status": p.Status}, "", " ")
		if err != nil {
			return err
		}
		for document, text := range map[string]string{"pod": string(data), "describe": described[i]} {
			if len(strings.Fields(p.Annotations["until"])) < 3 {
				text = restartCount.ReplaceAllString(text, "$1 MANY")
			}
			view[document+"/"+p.Name] = strings.TrimPrefix(text, "Name:")
		}
	}
	return nil
}

var restartCount = regexp.MustCompile(`("restartCount":|Restart Count:) *\d+`)

// events keeps which events there were, each once.
func (n *node) events(view map[string]string, ns string, document func(v1.Event) string, wanted func(v1.Event) bool) {
	n.t.Helper()
	list, err := n.api.CoreV1().Events(ns).List(n.t.Context(), metav1.ListOptions{})
	check(n.t, err)
	lines := map[string][]string{}
	for _, e := range list.Items {
		if wanted(e) {
			line := fmt.Sprintf("%s %s %s [%s]: %s", e.Type, e.Reason, e.ReportingController, e.InvolvedObject.FieldPath, Normal(e.Message))
			lines[document(e)] = append(lines[document(e)], strings.TrimSpace(line))
		}
	}
	for doc, all := range lines {
		slices.Sort(all)
		view[doc] = strings.Join(slices.Compact(all), "\n")
	}
}

func (n *node) nodeView(view map[string]string) {
	n.t.Helper()
	o := n.object()
	o.ManagedFields, o.ResourceVersion = nil, ""
	data, err := json.MarshalIndent(o, "", " ")
	check(n.t, err)
	view["node"] = string(data)
}
