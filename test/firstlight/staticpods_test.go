package firstlight

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// Reports from the field about pods from files, by their numbers, and what this project promises beside them. Those
// that share an agent go on at the same time, each with files and pods of its own.
func TestStaticPods(t *testing.T) {
	b := private(t)
	t.Run("together", func(t *testing.T) {
		n := newNode(t, b)
		n.Start()
		n.Ready()
		atOnce(t, map[string]func(*testing.T){
			"TestCase_c089_editorWithSwapFiles":             n.TestCase_c089_editorWithSwapFiles,
			"TestCase_c092_backInAnotherVersion":            n.TestCase_c092_backInAnotherVersion,
			"TestCase_c093_removedAndBackAtOnce":            n.TestCase_c093_removedAndBackAtOnce,
			"TestCase_c094_fullGraceBeforeTheNextVersion":   n.TestCase_c094_fullGraceBeforeTheNextVersion,
			"TestCase_c096_referencesToObjects":             n.TestCase_c096_referencesToObjects,
			"TestCase_c101_withoutAPIServer":                n.TestCase_c101_withoutAPIServer,
			"TestCase_c104_otherKinds":                      n.TestCase_c104_otherKinds,
			"a file renamed over another replaces its pod":  n.TestRenamedOver,
			"links are turned around as ..data":             n.TestTurnedLinks,
			"edits while a pod ends count once it has":      n.TestEditedWhileEnding,
			"a removed pod gets its grace and leaves all":   n.TestRemovedWithGrace,
			"a pod that ignores the signal is killed":       n.TestKilledAfterGrace,
			"a broken overwrite keeps the pod as it was":    n.TestBrokenOverwrite,
			"a removed pod ends while it still starts":      n.TestRemovedWhileStarting,
			"a preStop hook runs before the signal, in all": n.TestPreStop,
		})
		n.stop(t)
	})
	for _, c := range []struct {
		name string
		test func(*node, *testing.T)
	}{
		{"TestCase_c100_uidPerNodeAndFile", (*node).TestCase_c100_uidPerNodeAndFile},
		{"TestCase_c103_oddEntries", (*node).TestCase_c103_oddEntries},
		{"TestCase_c106_rewrittenAtBoot", (*node).TestCase_c106_rewrittenAtBoot},
		{"TestCase_c107_directoryGoneAndBack", (*node).TestCase_c107_directoryGoneAndBack},
		{"TestCase_c107_directoryMissingAtStart", (*node).TestCase_c107_directoryMissingAtStart},
		{"pods run before the node has a certificate", (*node).TestBeforeThereIsACertificate},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := b.RemovePods(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.test(newNode(t, b), t)
		})
	}
}

// atOnce runs tests side by side, however many processors there are: they mostly wait.
func atOnce(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	var all sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		all.Go(func() { t.Run(name, tests[name]) })
	}
	all.Wait()
}

// pause lets time pass, where the time itself is what is tested.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// never fails when two instances of a container of the pod ran at the same time.
func never(t *testing.T, ran []instance) {
	t.Helper()
	for _, o := range overlaps(ran) {
		t.Errorf("two instances ran at once: %+v and %+v", o[0], o[1])
	}
}

func (n *node) TestCase_c089_editorWithSwapFiles(t *testing.T) {
	pod := shell{name: "c089", grace: 5}
	file := filepath.Join(n.Manifests, "c089.yaml")
	pod.version = "start"
	n.put(t, "c089.yaml", pod.String())
	n.up(t, pod, 2*patience)
	swap, probe := filepath.Join(n.Manifests, ".c089.yaml.swp"), filepath.Join(n.Manifests, "4913")
	moments := true // the editor was as quick as editors are
	for round := range 20 {
		pod.version = fmt.Sprintf("round %d", round)
		began := time.Now()
		write(t, swap, "b0VIM 9.1")
		write(t, probe, "")
		if err := os.Remove(probe); err != nil {
			t.Fatal(err)
		}
		rename(t, file, file+"~")
		write(t, file, pod.String())
		for _, f := range []string{file + "~", swap} {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Logf("round %d took the editor %v", round, took)
			moments = moments && took < 200*time.Millisecond // what is bad for longer is told
		}
		n.up(t, pod, 2*patience)
	}
	ran := n.seen.ran(t, pod.on(), 21)
	never(t, ran)
	if len(ran) != 21 {
		t.Errorf("%d containers ran for 21 versions", len(ran))
	}
	for _, word := range []string{"c089.yaml", "4913"} {
		for _, line := range n.logged(word) {
			if moments {
				t.Errorf("the log has %s", line)
			}
		}
	}
}

func (n *node) TestCase_c092_backInAnotherVersion(t *testing.T) {
	pod := shell{name: "c092", version: "1", grace: 10, script: slow}
	n.put(t, "c092.yaml", pod.String())
	first := n.up(t, pod, 2*patience)
	n.take(t, "c092.yaml")
	t.Logf("no trace after %v", n.gone(t, first, 2*patience))
	pod.version = "2"
	n.put(t, "c092.yaml", pod.String())
	n.up(t, pod, 2*patience)
	ran := n.seen.ran(t, pod.on(), 2)
	never(t, ran)
	if len(ran) != 2 || ran[0].code != 0 {
		t.Errorf("its containers were %+v", ran)
	}
}

func (n *node) TestCase_c093_removedAndBackAtOnce(t *testing.T) {
	const rounds = 50
	random := rand.New(rand.NewPCG(93, 0)) //nolint:gosec // the same pauses each time
	pod := shell{name: "c093", grace: 5, script: `trap 'sleep 1; exit 0' TERM; echo up; while :; do sleep 1 & wait $!; done`}
	for round := 0; round < rounds || len(n.seen.of(pod.on())) < rounds/5; round++ { // on a busy machine fewer of them get as far as a container
		pod.version = fmt.Sprint(round % 2)
		n.put(t, "c093.yaml", pod.String())
		there, total := time.Duration(random.Int64N(int64(3*time.Second))), time.Duration(random.Int64N(int64(3*time.Second)))
		pause(t, min(there, total))
		n.take(t, "c093.yaml")
		pause(t, total-min(there, total))
	}
	pod.version = "last"
	n.put(t, "c093.yaml", pod.String())
	n.up(t, pod, 2*patience)
	ran := n.seen.ran(t, pod.on(), 1)
	never(t, ran)
	agent.Eventually(t, patience, "one sandbox is left", func() error {
		if boxes := sandboxes(t, n.cri, pod.on()); len(boxes) != 1 {
			return fmt.Errorf("there are %d", len(boxes))
		}
		return nil
	})
}

func (n *node) TestCase_c094_fullGraceBeforeTheNextVersion(t *testing.T) {
	pod := shell{name: "c094", version: "1", grace: 30, script: `trap 'echo asked; sleep 10; echo bye; exit 0' TERM; echo up; while :; do sleep 1 & wait $!; done`}
	n.put(t, "c094.yaml", pod.String())
	old := n.up(t, pod, 2*patience)
	pod.version = "2"
	edited := time.Now()
	n.put(t, "c094.yaml", pod.String())
	n.up(t, pod, 2*patience)
	ran := n.seen.ran(t, pod.on(), 2)
	never(t, ran)
	if len(ran) != 2 || ran[0].code != 0 {
		t.Fatalf("its containers were %+v", ran)
	}
	took := ran[0].finished.Sub(edited)
	t.Logf("the old one ended %v after the edit, the new one started %v after that", took.Round(time.Millisecond), ran[1].started.Sub(ran[0].finished).Round(time.Millisecond))
	if took < 10*time.Second || took > 28*time.Second {
		t.Errorf("the old one ended %v after the edit, and it needs 10 s", took)
	}
	n.gone(t, old, patience)
}

func (n *node) TestCase_c096_referencesToObjects(t *testing.T) {
	const container = "  containers: [{name: c, image: busybox}]\n"
	for name, c := range map[string]struct{ spec, kind string }{
		"account":   {"  serviceAccountName: robot\n" + container, "ServiceAccount"},
		"secret":    {"  volumes: [{name: v, secret: {secretName: s}}]\n" + container, "Secret"},
		"configmap": {"  containers: [{name: c, image: busybox, envFrom: [{configMapRef: {name: m}}]}]\n", "ConfigMap"},
		"pull":      {"  imagePullSecrets: [{name: s}]\n" + container, "Secret"},
		"pvc":       {"  volumes: [{name: v, persistentVolumeClaim: {claimName: d}}]\n" + container, "PersistentVolumeClaim"},
		"claim":     {"  resourceClaims: [{name: gpu, resourceClaimName: g}]\n" + container, "ResourceClaim"},
		"token":     {"  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]\n" + container, "ServiceAccount"},
	} {
		file := "c096-" + name + ".yaml"
		n.put(t, file, "apiVersion: v1\nkind: Pod\nmetadata: {name: c096-"+name+"}\nspec:\n"+c.spec)
		line := n.says(t, "refused", filepath.Join(n.Manifests, file), c.kind)
		t.Logf("%s: %s", name, line)
		if pod := "c096-" + name + "-" + agent.Node; len(sandboxes(t, n.cri, pod)) > 0 {
			t.Errorf("%s has a sandbox", pod)
		}
	}
	control := shell{name: "c096-control", grace: 5, script: `cat /own/name >/empty/name && cp /empty/name /host/name; ` + polite}
	host := t.TempDir()
	n.put(t, "c096-control.yaml", control.String()+fmt.Sprintf(`    volumeMounts: [{name: h, mountPath: /host}, {name: e, mountPath: /empty}, {name: d, mountPath: /own}]
  volumes:
  - {name: h, hostPath: {path: %s}}
  - {name: e, emptyDir: {}}
  - {name: d, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
`, host))
	p := n.up(t, control, 2*patience)
	if name := read(t, filepath.Join(host, "name")); name != control.on() {
		t.Errorf("through the downward API, an emptyDir and a hostPath came %q", name)
	}
	pods, err := n.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if strings.HasPrefix(p.Name, "c096-") && p.Name != control.on() {
			t.Errorf("/pods has %s: %s", p.Name, brief(&p))
		}
	}
	n.take(t, "c096-control.yaml")
	n.gone(t, p, 2*patience) // with its volumes, which are mounted
	if left := read(t, "/proc/self/mountinfo"); strings.Contains(left, string(p.UID)) {
		t.Error("something of the pod is still mounted")
	}
}

func (n *node) TestCase_c101_withoutAPIServer(t *testing.T) {
	goes, stays := shell{name: "c101-goes", grace: 5}, shell{name: "c101-stays", grace: 5}
	n.put(t, "c101-goes.yaml", goes.String())
	n.put(t, "c101-stays.yaml", stays.String())
	gone := n.up(t, goes, 2*patience)
	n.up(t, stays, 2*patience)
	rename(t, filepath.Join(n.Manifests, "c101-goes.yaml"), filepath.Join(t.TempDir(), "c101-goes.yaml"))
	kill(t, n, stays.on())
	n.runs(t, "default", stays.on(), "is restarted", 2*patience, func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses[0]; s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 137 {
			return errors.New("was not restarted")
		}
		return ready(p)
	})
	n.gone(t, gone, patience)
	never(t, n.seen.ran(t, stays.on(), 2))
}

// kubernetes/kubernetes#68686: the API server that is to give the certificate may be one of the pods.
func (n *node) TestBeforeThereIsACertificate(t *testing.T) {
	dir := t.TempDir()
	bootstrap := filepath.Join(dir, "bootstrap")
	write(t, bootstrap, `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:9"}}], users: [{name: u, user: {token: abcdef.0123456789abcdef}}]}`)
	n.Flag("--bootstrap-kubeconfig="+bootstrap, "--kubeconfig="+filepath.Join(dir, "kubeconfig"), "--rotate-certificates=true")
	s := shell{name: "control-plane", grace: 5}
	n.put(t, "control-plane.yaml", s.String())
	n.Start()
	n.up(t, s, 2*patience)
	n.stop(t)
	n.Start() // with the kubeconfig that it wrote
	if err := os.Remove(filepath.Join(n.Manifests, "control-plane.yaml")); err != nil {
		t.Fatal(err)
	}
	n.Ready()
	n.stop(t)
}

// kill kills the processes of all running containers of a pod.
func kill(t *testing.T, n *node, pod string) {
	t.Helper()
	for _, c := range containers(t, n.cri, pod) {
		if pid := pidOf(t, n, c.GetId()); pid > 0 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (n *node) TestCase_c104_otherKinds(t *testing.T) {
	pod := `{metadata: {name: inner}, spec: {containers: [{name: c, image: busybox}]}}`
	for kind, text := range map[string]string{
		"DaemonSet":     "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: c104}\nspec: {selector: {matchLabels: {a: b}}, template: " + pod + "}\n",
		"Deployment":    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: c104}\nspec: {selector: {matchLabels: {a: b}}, template: " + pod + "}\n",
		"PodList":       "apiVersion: v1\nkind: PodList\nitems:\n" + strings.Repeat("- "+pod+"\n", 500),
		"List":          "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- "+pod+"\n", 500),
		"Namespace":     "apiVersion: v1\nkind: Namespace\nmetadata: {name: c104}\n",
		"Kustomization": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
	} {
		file := "c104-" + strings.ToLower(kind) + ".yaml"
		n.put(t, file, text)
		line := n.says(t, "refused", filepath.Join(n.Manifests, file))
		t.Logf("%s: %s", kind, line)
		_, why, _ := strings.Cut(line, " err=")
		if !strings.Contains(why, kind) || len(line) > 500 {
			t.Errorf("%s is refused without its name, or in too many words (%d): %s", kind, len(line), line)
		}
	}
	for _, name := range []string{"inner-" + agent.Node, "c104-" + agent.Node} {
		if _, err := n.Pod(t.Context(), "default", name); err == nil {
			t.Errorf("/pods has %s", name)
		}
	}
	neighbour := shell{name: "c104", grace: 5}
	n.put(t, "c104.yaml", neighbour.String())
	n.up(t, neighbour, 2*patience)
}

func (n *node) TestRenamedOver(t *testing.T) {
	pod := shell{name: "over", version: "1", grace: 5}
	n.put(t, "over.yaml", pod.String())
	old := n.up(t, pod, 2*patience)
	pod.version = "2"
	n.put(t, "over.yaml", pod.String())
	n.up(t, pod, 2*patience)
	n.gone(t, old, patience)
	never(t, n.seen.ran(t, pod.on(), 2))
}

func (n *node) TestTurnedLinks(t *testing.T) {
	dir := func(version int) string { return fmt.Sprintf("..2026_%02d", version) }
	publish := func(version int) {
		pod := shell{name: "linked", version: fmt.Sprint(version), grace: 5}
		write(t, filepath.Join(n.Manifests, dir(version), "linked.yaml"), pod.String())
		fresh := filepath.Join(n.Manifests, "..data_tmp")
		if err := os.Symlink(dir(version), fresh); err != nil {
			t.Fatal(err)
		}
		rename(t, fresh, filepath.Join(n.Manifests, "..data"))
		if err := os.RemoveAll(filepath.Join(n.Manifests, dir(version-1))); err != nil {
			t.Fatal(err)
		}
	}
	linked := func(version string) *v1.Pod {
		t.Helper()
		return n.up(t, shell{name: "linked", version: version}, 2*patience)
	}
	publish(1)
	if err := os.Symlink(filepath.Join("..data", "linked.yaml"), filepath.Join(n.Manifests, "linked.yaml")); err != nil {
		t.Fatal(err)
	}
	linked("1")
	publish(2)
	linked("2")
	for v := range 5 {
		publish(3 + v) // in quick succession
	}
	last := linked("7")
	never(t, n.seen.ran(t, last.Name, 3))
	n.take(t, "linked.yaml")
	n.gone(t, last, patience)
	for _, line := range n.logged("linked.yaml", "refused") {
		t.Errorf("the log has %s", line)
	}
}

func (n *node) TestEditedWhileEnding(t *testing.T) {
	pod := shell{name: "edited", version: "1", grace: 30, script: strings.Replace(slow, "sleep 3", "sleep 10", 1)} // longer than all edits take
	n.put(t, "edited.yaml", pod.String())
	n.up(t, pod, 2*patience)
	pod.version = "2"
	n.put(t, "edited.yaml", pod.String())
	agent.Eventually(t, patience, "the first version is asked to end", func() error {
		pods, err := n.Pods(t.Context())
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.Name == pod.on() && version(&p) == "1" && p.DeletionTimestamp != nil {
				return nil
			}
		}
		return errors.New("/pods does not show it terminating")
	})
	for _, pod.version = range []string{"3", "4"} {
		n.put(t, "edited.yaml", pod.String())
		pause(t, 300*time.Millisecond)
	}
	n.up(t, pod, 2*patience)
	ran := n.seen.ran(t, pod.on(), 2)
	never(t, ran)
	if len(ran) != 2 || ran[0].code != 0 {
		t.Errorf("besides the first and the last version others ran: %+v", ran)
	}
}

func (n *node) TestRemovedWithGrace(t *testing.T) {
	pod := shell{name: "graceful", grace: 20, script: slow}
	n.put(t, "graceful.yaml", pod.String())
	p := n.up(t, pod, 2*patience)
	if left := n.traces(t, p); len(left) < 5 {
		t.Errorf("a running pod has left only %v", left)
	}
	removed := time.Now()
	n.take(t, "graceful.yaml")
	took := n.gone(t, p, 2*patience)
	ran := n.seen.ended(t, pod.on(), 1)
	ended := ran[0].finished.Sub(removed)
	t.Logf("ended after %v, no trace after %v", ended.Round(time.Millisecond), took.Round(time.Millisecond))
	if len(ran) != 1 || ran[0].code != 0 || ended < 3*time.Second || ended > 18*time.Second {
		t.Errorf("it takes 3 s to end; its container ended with %d after %v", ran[0].code, ended)
	}
}

func (n *node) TestKilledAfterGrace(t *testing.T) {
	pod := shell{name: "deaf", grace: 4, script: deaf}
	n.put(t, "deaf.yaml", pod.String())
	p := n.up(t, pod, 2*patience)
	removed := time.Now()
	n.take(t, "deaf.yaml")
	took := n.gone(t, p, 2*patience)
	ran := n.seen.ended(t, pod.on(), 1)
	ended := ran[0].finished.Sub(removed)
	t.Logf("killed after %v, no trace after %v", ended.Round(time.Millisecond), took.Round(time.Millisecond))
	if len(ran) != 1 || ran[0].code != 137 || ended < 4*time.Second || ended > 15*time.Second {
		t.Errorf("it has 4 s of grace; its container ended with %d after %v", ran[0].code, ended)
	}
}

func (n *node) TestBrokenOverwrite(t *testing.T) {
	pod := shell{name: "broken", version: "1", grace: 5}
	n.put(t, "broken.yaml", pod.String())
	n.up(t, pod, 2*patience)
	before := containers(t, n.cri, pod.on())
	path := filepath.Join(n.Manifests, "broken.yaml")
	for k, text := range []string{"", "kind: [", pod.String()[:100], "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\n"} {
		write(t, path, text) // in place, as careless writers do
		agent.Eventually(t, patience, "the broken file is told of", func() error {
			if told := n.logged("keeps running", path); len(told) != k+1 {
				return fmt.Errorf("the log has %d lines", len(told))
			}
			return nil
		})
	}
	after := containers(t, n.cri, pod.on())
	if len(after) != 1 || after[0].GetId() != before[0].GetId() {
		t.Errorf("the container was %v and is %v", before, after)
	}
	pod.version = "2"
	n.put(t, "broken.yaml", pod.String())
	last := n.up(t, pod, 2*patience)
	write(t, path, "kind: [")
	n.take(t, "broken.yaml")
	n.gone(t, last, patience)
	never(t, n.seen.ran(t, pod.on(), 2))
}

func (n *node) TestRemovedWhileStarting(t *testing.T) {
	for round := range 5 {
		pod := shell{name: fmt.Sprintf("early-%d", round), grace: 5}
		n.put(t, "early.yaml", pod.String())
		var p *v1.Pod
		agent.Eventually(t, patience, "the pod is wanted", func() (err error) {
			p, err = n.Pod(t.Context(), "default", pod.on())
			return err
		})
		pause(t, time.Duration(round)*60*time.Millisecond)
		n.take(t, "early.yaml")
		t.Logf("removed after %d ms: no trace after %v", round*60, n.gone(t, p, 2*patience).Round(time.Millisecond))
	}
}

func (n *node) TestPreStop(t *testing.T) {
	pod := shell{name: "hooked", grace: 20}
	text := strings.Replace(pod.String(), "    env:", `    lifecycle: {preStop: {exec: {command: [sh, -c, "echo hook >/proc/1/fd/1; sleep 2"]}}}
    env:`, 1)
	n.put(t, "hooked.yaml", text)
	p := n.up(t, pod, 2*patience)
	log := filepath.Join(n.Logs, "default_"+p.Name+"_"+string(p.UID), "main", "0.log")
	kept := filepath.Join(t.TempDir(), "log")
	if err := os.Link(log, kept); err != nil { // the log goes with the pod
		t.Fatal(err)
	}
	removed := time.Now()
	n.take(t, "hooked.yaml")
	n.gone(t, p, 2*patience)
	ran := n.seen.ended(t, p.Name, 1)
	if ended := ran[0].finished.Sub(removed); ended < 2*time.Second || ran[0].code != 0 {
		t.Errorf("its container ended with %d after %v, and its hook takes 2 s", ran[0].code, ended)
	}
	said := read(t, kept)
	if hook, asked := strings.Index(said, "F hook"), strings.Index(said, "F asked"); hook < 0 || asked < hook {
		t.Errorf("it said %q", said)
	}
}
