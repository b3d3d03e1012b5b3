package staticpod

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

func TestFilesComeChangeAndGo(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), podText("a", "one"))
	n := startPatient(t, dir, Config{Node: "N1"})
	n.wants("a-n1=one")

	write(t, filepath.Join(dir, "b.json"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"two"}]}}`)
	n.wants("a-n1=one", "b-n1=two")
	replace(t, filepath.Join(dir, "a.yaml"), podText("a", "three"))
	n.wants("a-n1=three", "b-n1=two")
	remove(t, filepath.Join(dir, "b.json"))
	n.wants("a-n1=three")
	remove(t, filepath.Join(dir, "a.yaml"))
	n.wants()
	if l := n.Lines(""); len(l) > 0 {
		t.Errorf("nothing was wrong, but logged: %v", l)
	}
}

func TestPodIsPlacedOnTheNode(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "49.yaml")
	b, err := os.ReadFile(filepath.Join(badManifests, "49-forged-source.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, strings.Replace(string(b), "spec:\n", "spec:\n  nodeName: some-other-node\n", 1)+"status: {phase: Running}\n")
	before := time.Now()
	n := startDir(t, dir, Config{Node: "Node-1"})
	n.wants("forged-source-node-1=busybox")
	p := n.pod("forged-source-node-1")
	if p.Namespace != "default" || p.Spec.NodeName != "Node-1" || p.Status.Phase != v1.PodPending || !validUID(string(p.UID)) || len(p.UID) != 32 {
		t.Errorf("%s/%s on %s, phase %s, uid %s", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.UID)
	}
	if p.Annotations[podspec.SourceAnnotation] != "file" || p.Annotations[podspec.HashAnnotation] != string(p.UID) {
		t.Errorf("annotations %v", p.Annotations)
	}
	if seen, err := time.Parse(time.RFC3339Nano, p.Annotations[podspec.SeenAnnotation]); err != nil || seen.Before(before.Truncate(0)) {
		t.Errorf("seen %s, %v", p.Annotations[podspec.SeenAnnotation], err)
	}
	want := []v1.Toleration{{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}
	if !slices.Equal(p.Spec.Tolerations, want) {
		t.Errorf("tolerations %v", p.Spec.Tolerations)
	}
}

func TestBrokenOverwriteKeepsThePodUntilTheFileIsGoodOrGone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, podText("a", "one"))
	n := startDir(t, dir, Config{})
	n.wants("a-n1=one")
	first := n.pod("a-n1")

	for _, broken := range []string{"", "kind: [", "apiVersion: v1\nkind: Deployment\n", podText("a", " ")} {
		write(t, file, broken)
		n.looked()
		if n.pod("a-n1") != first {
			t.Fatalf("the pod did not survive %q", broken)
		}
	}
	n.tells("WARN", "keeps running", file, "blanks")
	replace(t, file, podText("a", "one"))
	n.tells("INFO", "good again", file)
	if n.pod("a-n1") != first {
		t.Error("the same content is another pod")
	}
	write(t, file, "kind: [")
	n.looked()
	remove(t, file)
	n.wants()
}

func TestEachBadEntryIsToldOnceUntilItChanges(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bad.yaml")
	write(t, file, "kind: Deployment\n")
	n := startDir(t, dir, Config{Rescan: 20 * time.Millisecond})
	n.tells("refused", file, "Deployment")
	for range 3 {
		if err := os.Chtimes(file, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		n.looked()
	}
	if l := n.Lines("bad.yaml"); len(l) != 1 {
		t.Errorf("told %d times: %v", len(l), l)
	}
	events := n.Events()
	if len(events) != 1 || events[0].Reason != "FailedValidation" || events[0].About.Kind != "Node" {
		t.Errorf("events %+v", events)
	}
	write(t, file, "kind: Job\n")
	n.tells("refused", file, "Job")
}

func TestFileThatIsBadForAMomentIsNotTold(t *testing.T) {
	dir := t.TempDir()
	n := startPatient(t, dir, Config{})
	n.wants()
	file := filepath.Join(dir, "a.yaml")
	text := podText("a", "one")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{text[:20], text[20:60], text[60:]} { // a writer in place, slower than a burst
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * burst)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n.wants("a-n1=one")
	if l := n.Lines(""); len(l) > 0 {
		t.Errorf("logged %v", l)
	}
}

func TestFirstOfTwoPodsWithOneNameWinsAndKeepsIt(t *testing.T) {
	for name, twin := range map[string]func(string) string{
		"name": func(image string) string { return podText("a", image) },
		"uid": func(image string) string {
			return strings.Replace(podText("a-"+image, image), "{name:", "{uid: 0f0f0f0f-0000-4000-8000-000000000001, name:", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "m.yaml"), twin("m"))
			write(t, filepath.Join(dir, "z.yaml"), twin("z"))
			n := startDir(t, dir, Config{})
			n.until("m alone", func() bool { s, c, _ := n.state(); return c && len(s) == 1 && strings.HasSuffix(s[0], "=m") })
			n.tells("refused", "z.yaml", "m.yaml", name)

			// One that comes later does not take over, though its name is the first.
			write(t, filepath.Join(dir, "b.yaml"), twin("b"))
			n.tells("refused", "b.yaml", "m.yaml")
			replace(t, filepath.Join(dir, "m.yaml"), twin("m2"))
			n.until("m2", func() bool { s, _, _ := n.state(); return len(s) == 1 && strings.HasSuffix(s[0], "=m2") })

			remove(t, filepath.Join(dir, "m.yaml"))
			n.until("b alone", func() bool { s, _, _ := n.state(); return len(s) == 1 && strings.HasSuffix(s[0], "=b") })
		})
	}
}

func TestRenamedFileHandsItsPodOver(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), podText("a", "one"))
	n := startDir(t, dir, Config{})
	n.wants("a-n1=one")
	rename(t, filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"))
	old := n.pod("a-n1").UID
	n.until("the pod of b.yaml", func() bool { p := n.pod("a-n1"); return p != nil && p.UID != old })
	n.looked()
	if l := n.Lines(""); len(l) > 0 {
		t.Errorf("logged %v", l)
	}
}

func TestLinksTheWayVolumesAreSwapped(t *testing.T) {
	dir := t.TempDir()
	data := func(version, image string) {
		mkdir(t, filepath.Join(dir, version))
		write(t, filepath.Join(dir, version, "web.yaml"), podText("web", image))
	}
	data("..v1", "one")
	link(t, "..v1", filepath.Join(dir, "..data"))
	link(t, "..data/web.yaml", filepath.Join(dir, "web.yaml"))
	n := startDir(t, dir, Config{})
	n.wants("web-n1=one")
	for i, image := range []string{"two", "three", "four"} {
		version := "..v" + string(rune('2'+i))
		data(version, image)
		link(t, version, filepath.Join(dir, "..data_tmp"))
		rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		n.wants("web-n1=" + image)
	}
	if l := n.Lines(""); len(l) > 0 {
		t.Errorf("logged %v", l)
	}
}

func TestSingleFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pod.yaml")
	n := startDir(t, file, Config{Rescan: 50 * time.Millisecond})
	n.until("nothing known", func() bool { s, c, sets := n.state(); return sets == 1 && !c && len(s) == 0 })
	write(t, file, podText("a", "one"))
	n.wants("a-n1=one")
	write(t, filepath.Join(dir, "other.yaml"), podText("b", "one"))
	replace(t, file, podText("a", "two"))
	n.wants("a-n1=two")
	remove(t, file)
	n.wants()
	write(t, file, podText("a", "three"))
	n.wants("a-n1=three")
	gone := dir + "-away"
	rename(t, dir, gone)
	t.Cleanup(func() { remove(t, gone) })
	n.tells("cannot be read", "keep running")
	if n.pod("a-n1") == nil {
		t.Error("the pod of a file whose directory is away was dropped")
	}
}

func TestDirectoryReplacedByAnEmptyOneIsBelievedLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	mkdir(t, dir)
	write(t, filepath.Join(dir, "a.yaml"), podText("a", "one"))
	n := startDir(t, dir, Config{Rescan: 300 * time.Millisecond})
	n.wants("a-n1=one")
	rename(t, dir, dir+"-old")
	mkdir(t, dir)
	n.tells("ERROR", "keep running", "replaced by an empty directory")
	n.wants()
}

func TestEveryChangeOfABurstIsSeen(t *testing.T) {
	dir := t.TempDir()
	n := startDir(t, dir, Config{})
	n.wants()
	file := filepath.Join(dir, "a.yaml")
	for i := range 200 {
		replace(t, file, podText("a", "image-"+string(rune('a'+i%26))+string(rune('a'+i/26))))
	}
	n.wants("a-n1=image-" + string(rune('a'+199%26)) + string(rune('a'+199/26)))
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no path":       {Node: "n"},
		"no node":       {Path: "p"},
		"no node name":  {Path: "p", Node: "a/b"},
		"nothing given": {},
	} {
		if _, err := NewDir(cfg); err == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
}

// All bad manifests in one directory do nothing to each other.
func TestBadManifestsAllTogether(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(badManifests)); err != nil {
		t.Fatal(err)
	}
	remove(t, filepath.Join(dir, "expected.tsv"))
	link(t, "53-dup.yaml.bak", filepath.Join(dir, "dup.yaml")) // the original beside the backup
	n := startDir(t, dir, Config{})
	outcomes(t, n, expectations(t), "dup-n1")
}

func TestBadManifestsSingly(t *testing.T) {
	for _, row := range expectations(t) {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			b, err := os.ReadFile(filepath.Join(badManifests, row.file))
			if err != nil {
				t.Fatal(err)
			}
			mkdir(t, filepath.Dir(filepath.Join(dir, row.file)))
			write(t, filepath.Join(dir, row.file), string(b))
			write(t, filepath.Join(dir, "neighbour.yaml"), podText("neighbour", "busybox"))
			n := startDir(t, dir, Config{})
			outcomes(t, n, []expectation{row}, "neighbour-n1")
		})
	}
}

// outcomes checks that each row became what is expected of it, and that one good pod runs beside them.
func outcomes(t *testing.T, n *node, rows []expectation, beside string) {
	t.Helper()
	want := map[string]bool{beside: true}
	for _, row := range rows {
		if row.outcome == "accepted" || refusedLater[row.file] {
			want[podNames[row.file]] = true
		}
	}
	n.until("the good ones of "+badManifests, func() bool {
		names, complete, _ := n.state()
		got := map[string]bool{}
		for i := range names {
			name, _, _ := strings.Cut(names[i], "=")
			got[name] = true
		}
		return complete && maps.Equal(got, want)
	})
	for _, row := range rows {
		file := filepath.Join(n.path, row.file)
		switch {
		case row.outcome == "rejected-with-error" && !refusedLater[row.file]:
			n.tells("refused", "file="+file+" ")
		case strings.HasPrefix(row.file, "subdir/"):
			n.tells("refused", "file="+filepath.Dir(file)+" ", "directory")
		case len(n.Lines(file)) > 0:
			t.Errorf("%s: logged %v", row.file, n.Lines(file))
		}
	}
	for _, l := range n.Lines("") {
		plainAndShort(t, l)
	}
}

var podNames = map[string]string{
	"22-bom-crlf.yaml": "bom-crlf-n1", "23-pod.json": "json-pod-n1", "32-envsubst-unrendered.yaml": "envsubst-n1",
	"46-uid-collision-a.yaml": "uid-same-a-n1", "49-forged-source.yaml": "forged-source-n1", "50-foreign-node.yaml": "foreign-node-n1",
	"51-same-name-ns-a.yaml": "team-a/twin-n1", "52-same-name-ns-b.yaml": "team-b/twin-n1",
	"84-unsafe-sysctl.yaml": "sysctl-n1", "85-windows-on-linux.yaml": "win-n1",
}

// BenchmarkDelivery is the time from a manifest renamed into place to its pod delivered, beside 20 others.
func BenchmarkDelivery(b *testing.B) {
	dir := b.TempDir()
	for i := range 20 {
		write(b, filepath.Join(dir, "other-"+string(rune('a'+i))+".yaml"), podText("other-"+string(rune('a'+i)), "busybox"))
	}
	d, err := NewDir(Config{Path: dir, Node: "n1"})
	if err != nil {
		b.Fatal(err)
	}
	images := make(chan string, 1000)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() {
		done <- d.Run(ctx, func(pods []*v1.Pod, _ bool) {
			if p := pods[len(pods)-1]; p.Name == "web-n1" {
				images <- p.Spec.Containers[0].Image
			}
		})
	}()
	file := filepath.Join(dir, "web.yaml")
	for i := 0; b.Loop(); i++ {
		image := "image-" + strconv.Itoa(i)
		replace(b, file, podText("web", image))
		for <-images != image {
		}
	}
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

// As with the kubelet, that is how people restart a pod.
func TestAFileThatIsRemovedAndMadeAnewIsANewPod(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, podText("web", "a"))
	n := startPatient(t, dir, Config{})
	n.wants("web-n1=a")
	_, _, before := n.state()
	remove(t, file)
	write(t, file, podText("web", "a"))
	n.until("it was left out of one set", func() bool {
		names, _, sets := n.state()
		return sets == before+2 && len(names) == 1
	})
	remove(t, file)
	write(t, file, "kind: Pod\nmetadata: [")
	n.until("what is bad now is no pod", func() bool {
		names, _, _ := n.state()
		return len(names) == 0
	})
	rename(t, file, file+".tmp")
	write(t, file, podText("web", "a"))
	n.wants("web-n1=a")
	was := n.pod("web-n1")
	rename(t, file, file+"~") // an editor at work
	write(t, file, podText("web", "a"))
	remove(t, file+"~")
	n.looked()
	if n.pod("web-n1") != was {
		t.Error("an editor made it another pod")
	}
}

func TestSourcesThatMakeNoSenseAreRefused(t *testing.T) {
	for name, try := range map[string]func() error{
		"no directory":       func() error { _, err := NewDir(Config{Node: "n"}); return err },
		"a negative rescan":  func() error { _, err := NewDir(Config{Path: "/manifests", Node: "n", Rescan: -1}); return err },
		"no URL":             func() error { _, err := NewURL(URLConfig{URL: "host:80", Node: "n"}); return err },
		"a negative request": func() error { _, err := NewURL(URLConfig{URL: "http://host/", Node: "n", Every: -1}); return err },
	} {
		if try() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
