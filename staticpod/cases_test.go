package staticpod

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Reports from the field, by their numbers, as far as the source alone can prove them.

func TestCase_c089_editorWithSwapFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, podText("web", "start"))
	n := startPatient(t, dir, Config{})
	n.wants("web-n1=start")
	for round := range 20 {
		swap := filepath.Join(dir, ".web.yaml.swp")
		write(t, swap, "b0VIM 9.1")
		write(t, filepath.Join(dir, "4913"), "")
		remove(t, filepath.Join(dir, "4913"))
		rename(t, file, file+"~")
		image := fmt.Sprintf("round-%d", round)
		write(t, file, podText("web", image))
		remove(t, file+"~")
		remove(t, swap)
		n.wants("web-n1=" + image)
	}
	n.looked()
	if l := n.Lines(""); len(l) > 0 {
		t.Errorf("logged %v", l)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen["web-n1"] != 21 {
		t.Errorf("%d pods in 21 versions", n.seen["web-n1"])
	}
}

// Whether anybody sees that a file was away for a moment is chance. What is there at the end is delivered, and never two
// pods of one name.
func TestCase_c093_quickRemovalAndReturn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	n := startPatient(t, dir, Config{})
	last := ""
	for round := range 50 {
		last = "image-" + fmt.Sprint(round%2)
		write(t, file, podText("web", last))
		switch round % 5 {
		case 0:
			n.wants("web-n1=" + last)
		case 1:
			time.Sleep(burst)
		}
		remove(t, file)
		if round%10 == 0 {
			n.wants()
		}
	}
	write(t, file, podText("web", last))
	n.wants("web-n1=" + last)
	if l := n.Lines(""); len(l) > 0 {
		t.Errorf("logged %v", l)
	}
}

func TestCase_c096_objectsOfTheAPIServer(t *testing.T) {
	container := "  containers:\n  - name: c\n    image: busybox\n"
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n"
	for name, c := range map[string]struct{ text, kind string }{
		"service account":        {pod + "  serviceAccountName: robot\n" + container, "ServiceAccount"},
		"service account, old":   {pod + "  serviceAccount: robot\n" + container, "ServiceAccount"},
		"secret volume":          {pod + "  volumes: [{name: v, secret: {secretName: s}}]\n" + container, "Secret"},
		"config map variables":   {pod + container + "    envFrom: [{configMapRef: {name: m}}]\n", "ConfigMap"},
		"config map variable":    {pod + container + "    env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}]\n", "ConfigMap"},
		"secret variables":       {pod + container + "    envFrom: [{secretRef: {name: s, optional: true}}]\n", "Secret"},
		"secret variable":        {pod + container + "    env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]\n", "Secret"},
		"pull secret":            {pod + "  imagePullSecrets: [{name: s}]\n" + container, "Secret"},
		"claim":                  {pod + "  volumes: [{name: v, persistentVolumeClaim: {claimName: d}}]\n" + container, "PersistentVolumeClaim"},
		"generic claim":          {pod + "  volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}]\n" + container, "PersistentVolumeClaim"},
		"resource claim":         {pod + "  resourceClaims: [{name: gpu, resourceClaimName: g}]\n" + container, "ResourceClaim"},
		"projected token":        {pod + "  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]\n" + container, "ServiceAccount"},
		"projected secret":       {pod + "  volumes: [{name: v, projected: {sources: [{secret: {name: s}}]}}]\n" + container, "Secret"},
		"projected config map":   {pod + "  volumes: [{name: v, projected: {sources: [{configMap: {name: s}}]}}]\n" + container, "ConfigMap"},
		"projected trust":        {pod + "  volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: s, path: p}}]}}]\n" + container, "ClusterTrustBundle"},
		"projected certificate":  {pod + "  volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: a/b, keyType: ED25519}}]}}]\n" + container, "PodCertificateRequest"},
		"config map volume":      {pod + "  volumes: [{name: v, configMap: {name: m}}]\n" + container, "ConfigMap"},
		"CSI volume":             {pod + "  volumes: [{name: v, csi: {driver: d}}]\n" + container, "CSIDriver"},
		"gluster volume":         {pod + "  volumes: [{name: v, glusterfs: {endpoints: e, path: p}}]\n" + container, "Endpoints"},
		"secret of a volume":     {pod + "  volumes: [{name: v, iscsi: {targetPortal: a, iqn: iqn.2001-04.x:y, lun: 0, secretRef: {name: s}}}]\n" + container, "Secret"},
		"in an init container":   {pod + container + "  initContainers: [{name: i, image: b, envFrom: [{secretRef: {name: s}}]}]\n", "Secret"},
		"control: what is local": {pod + "  volumes: [{name: h, hostPath: {path: /x}}, {name: e}, {name: d, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]\n" + container, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Decode([]byte(c.text))
			switch {
			case c.kind == "" && err != nil:
				t.Error(err)
			case c.kind != "" && (err == nil || !strings.Contains(err.Error(), c.kind+" of the API server")):
				t.Errorf("want the kind %s named, got %v", c.kind, err)
			}
		})
	}
}

func TestCase_c100_uidPerNodeAndFile(t *testing.T) {
	uidOf := func(dir, file, nodeName, text string) string {
		write(t, filepath.Join(dir, file), text)
		var uid string
		d, err := NewDir(Config{Path: dir, Node: nodeName})
		if err != nil {
			t.Fatal(err)
		}
		pods, _ := lookOnce(d)
		for _, p := range pods {
			uid = string(p.UID)
		}
		remove(t, filepath.Join(dir, file))
		return uid
	}
	dir := t.TempDir()
	text := podText("web", "busybox")
	first := uidOf(dir, "a.yaml", "n1", text)
	for name, other := range map[string]string{
		"another node":    uidOf(dir, "a.yaml", "n2", text),
		"another file":    uidOf(dir, "b.yaml", "n1", text),
		"another place":   uidOf(t.TempDir(), "a.yaml", "n1", text),
		"another content": uidOf(dir, "a.yaml", "n1", podText("web", "nginx")),
	} {
		if other == first || !validUID(other) {
			t.Errorf("%s: uid %s, first %s", name, other, first)
		}
	}
	for name, same := range map[string]string{
		"the agent anew":   uidOf(dir, "a.yaml", "n1", text),
		"comments":         uidOf(dir, "a.yaml", "n1", "# a comment\n"+text),
		"another layout":   uidOf(dir, "a.yaml", "n1", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"busybox"}]}}`),
		"a status":         uidOf(dir, "a.yaml", "n1", text+"status: {phase: Running}\n"),
		"Windows newlines": uidOf(dir, "a.yaml", "n1", strings.ReplaceAll(text, "\n", "\r\n")),
	} {
		if same != first {
			t.Errorf("%s: uid %s, first %s", name, same, first)
		}
	}
}

func TestCase_c100_identicalRewriteIsNothingNew(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	text := podText("a", "one")
	write(t, file, text)
	n := startDir(t, dir, Config{Rescan: 20 * time.Millisecond})
	n.wants("a-n1=one")
	first := n.pod("a-n1")
	for _, touch := range []func() error{
		func() error { return os.WriteFile(file, []byte(text), 0o600) },
		func() error { replace(t, file, text); return nil },
		func() error { return os.Chtimes(file, time.Now(), time.Now()) },
		func() error { return os.Chmod(file, 0o644) },
		func() error { return os.WriteFile(file, []byte("# why\n"+text), 0o600) },
	} {
		if err := touch(); err != nil {
			t.Fatal(err)
		}
		n.looked()
		if n.pod("a-n1") != first {
			t.Fatal("another pod was delivered")
		}
	}
	_, _, before := n.state()
	time.Sleep(100 * time.Millisecond) // some rescans
	if _, _, after := n.state(); after != before {
		t.Errorf("%d sets for nothing", after-before)
	}
}

func TestCase_c103_oddEntries(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, filepath.Join(dir, "sub"))
	write(t, filepath.Join(dir, "sub", "pod.yaml"), podText("in-sub", "busybox"))
	pipe := func(name string) {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe("a-pipe")
	link(t, "missing", filepath.Join(dir, "b"))
	link(t, "/dev/zero", filepath.Join(dir, "c"))
	write(t, filepath.Join(dir, "d.yaml"), string(bytes.Repeat([]byte("a"), 20<<20)))
	link(t, "/proc/kmsg", filepath.Join(dir, "f")) // a regular file that blocks when read
	link(t, "g", filepath.Join(dir, "g"))
	socket := filepath.Join(dir, "s")
	if l, err := net.Listen("unix", socket); err != nil {
		t.Logf("no socket: %v", err)
	} else {
		defer l.Close()
	}
	write(t, filepath.Join(dir, "e.yaml"), podText("e", "busybox"))

	n := startDir(t, dir, Config{})
	n.wants("e-n1=busybox")
	pipe("later-pipe")
	want := map[string]string{
		"sub": "directory", "a-pipe": "pipe", "b": "link", "c": "device", "d.yaml": "20 MiB", "f": "empty", "g": "cannot be read", "later-pipe": "pipe", "s": "socket",
	}
	for name, why := range want {
		n.tells("refused", "file="+filepath.Join(dir, name)+" ", why)
	}
	n.looked()
	if l := n.Lines(""); len(l) != len(want) {
		t.Errorf("%d lines for %d entries: %s", len(l), len(want), strings.Join(l, "\n"))
	}
}

// Entries that are not read cost nothing, however large they are.
func TestCase_c103_memoryStaysFlat(t *testing.T) {
	dir := t.TempDir()
	large, err := os.Create(filepath.Join(dir, "large.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := large.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	_ = large.Close()
	link(t, "/dev/zero", filepath.Join(dir, "zero"))
	d, err := NewDir(Config{Path: dir, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := allocated(func() { lookOnce(d) }); got > 1<<20 {
		t.Errorf("%d KiB were allocated", got>>10)
	}
}

func TestCase_c104_otherKindsAreNamedShortly(t *testing.T) {
	dir := t.TempDir()
	kinds := map[string]string{
		"DaemonSet": "apps/v1", "Deployment": "apps/v1", "PodList": "v1", "List": "v1", "Namespace": "v1", "Kustomization": "kustomize.config.k8s.io/v1beta1",
	}
	for kind, version := range kinds {
		write(t, filepath.Join(dir, strings.ToLower(kind)+".yaml"),
			"apiVersion: "+version+"\nkind: "+kind+"\nmetadata: {name: x}\nspec: {template: {spec: {containers: [{name: c, image: i}]}}}\nitems: ["+strings.Repeat("{a: b}, ", 1000)+"]\n")
	}
	write(t, filepath.Join(dir, "pod.yaml"), podText("pod", "busybox"))
	n := startDir(t, dir, Config{})
	n.wants("pod-n1=busybox")
	for kind := range kinds {
		n.tells("refused", strings.ToLower(kind)+".yaml", "is of kind "+kind+"; only a Pod")
	}
	for _, l := range n.Lines("") {
		if len(l) > 300 {
			t.Errorf("a message of %d bytes: %s", len(l), l)
		}
	}
}

// An installer rewrites all files at each boot, some a little before and some a little after the agent starts.
func TestCase_c106_installerRewritesAtBoot(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name+".yaml") }
	for _, name := range []string{"a", "b", "c"} {
		write(t, file(name), podText(name, "one"))
	}
	d, err := NewDir(Config{Path: dir, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{} // before the boot
	pods, _ := lookOnce(d)
	for _, p := range pods {
		uids[p.Name] = string(p.UID)
	}
	write(t, file("a"), podText("a", "one"))
	n := startDir(t, dir, Config{})
	n.wants("a-n1=one", "b-n1=one", "c-n1=one")
	write(t, file("b"), podText("b", "one"))
	write(t, file("c"), podText("c", "two"))
	n.wants("a-n1=one", "b-n1=one", "c-n1=two")
	for name, changed := range map[string]bool{"a-n1": false, "b-n1": false, "c-n1": true} {
		if (string(n.pod(name).UID) != uids[name]) != changed {
			t.Errorf("%s: uid %s, was %s", name, n.pod(name).UID, uids[name])
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, want := range map[string]int{"a-n1": 1, "b-n1": 1, "c-n1": 2} {
		if n.seen[name] != want {
			t.Errorf("%s: %d pods, want %d", name, n.seen[name], want)
		}
	}
}

func TestCase_c107_directoryGoneForAWhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	mkdir(t, dir)
	for _, name := range []string{"apiserver", "etcd", "vip"} {
		write(t, filepath.Join(dir, name+".yaml"), podText(name, "one"))
	}
	n := startDir(t, dir, Config{Rescan: 50 * time.Millisecond})
	n.wants("apiserver-n1=one", "etcd-n1=one", "vip-n1=one")
	_, _, before := n.state()
	rename(t, dir, dir+"-away")
	n.tells("ERROR", "cannot be read", "keep running", dir)
	time.Sleep(300 * time.Millisecond) // more than settle and a few rescans
	rename(t, dir+"-away", dir)
	n.tells("INFO", "is back")
	n.looked()
	names, complete, after := n.state()
	if len(names) != 3 || !complete || after != before+2 { // the two of the marker
		t.Errorf("%v, complete %v, %d more sets", names, complete, after-before)
	}
	if l := n.Lines("ERROR"); len(l) != 1 {
		t.Errorf("errors %v", l)
	}
	// It is watched again, whichever directory it is now.
	write(t, filepath.Join(dir, "more.yaml"), podText("more", "one"))
	n.until("the new pod", func() bool { return n.pod("more-n1") != nil })
}

func TestCase_c107_directoryAbsentAtTheStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	n := startDir(t, dir, Config{Rescan: 50 * time.Millisecond})
	n.tells("ERROR", "nothing on this node is cleaned up", dir)
	time.Sleep(200 * time.Millisecond)
	if names, complete, sets := n.state(); len(names) != 0 || complete || sets != 1 {
		t.Errorf("%v, complete %v, %d sets", names, complete, sets)
	}
	mkdir(t, dir)
	n.wants()
	write(t, filepath.Join(dir, "a.yaml"), podText("a", "one"))
	n.wants("a-n1=one")
}

// A mount that is missing leaves the empty directory it hides.
func TestCase_c107_missingMount(t *testing.T) {
	base := t.TempDir()
	other := "/dev/shm" // another file system
	if a, b := deviceOf(t, base), deviceOf(t, other); a == b {
		t.Skipf("%s and %s are one file system", base, other)
	}
	mounted, err := os.MkdirTemp(other, "staticpod") //nolint:usetesting // on another file system than t.TempDir
	if err != nil {
		t.Skipf("no second file system to write to: %v", err)
	}
	t.Cleanup(func() { remove(t, mounted) })
	write(t, filepath.Join(mounted, "etcd.yaml"), podText("etcd", "one"))
	hidden := filepath.Join(base, "hidden")
	mkdir(t, hidden)
	dir := filepath.Join(base, "manifests")
	link(t, mounted, dir)

	n := startDir(t, dir, Config{Rescan: 20 * time.Millisecond})
	n.wants("etcd-n1=one")
	first := n.pod("etcd-n1")
	turn := func(target string) {
		link(t, target, dir+"-new")
		rename(t, dir+"-new", dir)
	}
	turn(hidden)
	n.tells("ERROR", "is a mount missing?", "keep running")
	time.Sleep(300 * time.Millisecond)
	turn(mounted)
	n.tells("INFO", "is back")
	if n.pod("etcd-n1") != first {
		t.Error("the pod was restarted")
	}
}

func deviceOf(t *testing.T, path string) uint64 {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return device(fi)
}
