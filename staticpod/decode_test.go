package staticpod

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const badManifests = "testdata/bad-manifests"

type expectation struct{ file, outcome, reason string }

// expectations are the rows of expected.tsv.
func expectations(t testing.TB) []expectation {
	t.Helper()
	f, err := os.Open(filepath.Join(badManifests, "expected.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.LazyQuotes = '\t', true
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var list []expectation
	for _, row := range rows {
		list = append(list, expectation{row[0], row[1], row[2]})
	}
	return list
}

// refusedLater are those of the bad manifests that are good pods, for admission to refuse.
var refusedLater = map[string]bool{"84-unsafe-sysctl.yaml": true, "85-windows-on-linux.yaml": true}

// what the message about a bad manifest must say.
var mustSay = map[string][]string{
	"06-binary.yaml":                {"binary", "0x7f"},
	"08-4913":                       {"empty"},
	"10-deployment.yaml":            {"Deployment", "Pod"},
	"15-kustomization.yaml":         {"Kustomization"},
	"16-old-api-version.yaml":       {"v1beta3", "v1"},
	"17-no-api-version.yaml":        {"apiVersion"},
	"21-multi-doc-empty-first.yaml": {"first document is empty", "---"},
	"24-trailing-comma.json":        {"line 1", "JSON"},
	"25-two-json-objects.json":      {"line 2", "follows"},
	"26-flow-yaml-brace.yaml":       {"JSON", "{"},
	"29-alias-bomb.yaml":            {"alias"},
	"30-deep-nesting.yaml":          {"nested"},
	"31-helm-template.yaml":         {"template"},
	"40-uppercase-name.yaml":        {"metadata.name", "Web_Server", "lower case"},
	"41-generate-name-only.yaml":    {"metadata.name", "generateName"},
	"45-uid-path-traversal.yaml":    {"metadata.uid"},
	"60-exported-from-cluster.yaml": {"spec.serviceAccountName", "ServiceAccount", "ConfigMap"},
	"61-secret-volume.yaml":         {"spec.volumes[0].secret", "Secret"},
	"63-pull-secret.yaml":           {"spec.imagePullSecrets[0]", "Secret"},
	"64-resource-claim.yaml":        {"spec.resourceClaims[0]", "ResourceClaim"},
	"65-pvc.yaml":                   {"spec.volumes[0].persistentVolumeClaim", "PersistentVolumeClaim"},
	"70-duplicate-container.yaml":   {"spec.containers[1].name", "unique"},
	"71-bad-quantity.yaml":          {"spec.containers[0].resources.limits[memory]", "12Zi", "spec.containers[0].resources.limits[cpu]", "one"},
	"72-request-over-limit.yaml":    {"spec.containers[0].resources.requests[memory]", "2Gi", "1Gi"},
	"75-hostpath-backsteps.yaml":    {"spec.volumes[0].hostPath.path", ".."},
	"76-wrong-types.yaml":           {"spec.hostNetwork", "true or false", "spec.terminationGracePeriodSeconds", "30s"},
	"77-port-range.yaml":            {"ports[0].containerPort", "70000", "ports[1].containerPort"},
	"81-image-space.yaml":           {"spec.containers[0].image", "blanks"},
	"82-ephemeral-on-create.yaml":   {"spec.ephemeralContainers"},
	"83-scheduling-gate.yaml":       {"spec.schedulingGates"},
}

func TestBadManifestsAreRefusedInPlainWords(t *testing.T) {
	for _, row := range expectations(t) {
		if row.outcome == "ignored" || backup(row.file) {
			continue // by their name or place, which Decode does not see
		}
		t.Run(row.file, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(badManifests, row.file))
			if err != nil {
				t.Fatal(err)
			}
			pod, _, err := Decode(b)
			if accepted := row.outcome == "accepted" || refusedLater[row.file]; accepted != (err == nil) || accepted != (pod != nil) {
				t.Fatalf("accepted %v, want %s (%s): %v", err == nil, row.outcome, row.reason, err)
			}
			if err == nil {
				return
			}
			for _, part := range append(mustSay[row.file], "") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the message lacks %q: %v", part, err)
				}
			}
			if mustSay[row.file] == nil {
				t.Errorf("no words are expected of this message: %v", err)
			}
			plainAndShort(t, err.Error())
		})
	}
}

// plainAndShort checks what holds for all messages.
func plainAndShort(t *testing.T, message string) {
	t.Helper()
	if len(message) > 1500 {
		t.Errorf("the message has %d bytes", len(message))
	}
	for _, r := range message {
		if r < ' ' || r == 0x7f {
			t.Errorf("the message holds control characters: %q", message)
		}
	}
}

// The manifests people run: which ones run from a file, and of the others what they use of the API server.
func TestManifestsPeopleRun(t *testing.T) {
	refused := map[string][]string{
		"06": {"ServiceAccount", "ConfigMap"},
		"07": {"ServiceAccount", "Secret"},
		"08": {"ServiceAccount", "ConfigMap"},
		"12": {"ServiceAccount"},
		"16": {"ServiceAccount", "Secret", "ConfigMap", "PersistentVolumeClaim", "CSIDriver"},
		"23": {"ServiceAccount", "ConfigMap"},
	}
	files, err := filepath.Glob("testdata/manifests/*.yaml")
	if err != nil || len(files) != 32 {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, warnings, err := Decode(b)
			kinds := refused[filepath.Base(file)[:2]]
			if (err != nil) != (kinds != nil) {
				t.Fatalf("refused %v, want %v: %v", err != nil, kinds != nil, err)
			}
			if problems, ok := errors.AsType[Problems](err); ok {
				checkKinds(t, problems, kinds)
			}
			for _, w := range warnings {
				t.Errorf("warning: %s", w)
			}
		})
	}
}

// checkKinds compares the kinds a manifest is refused for with the wanted ones.
func checkKinds(t *testing.T, problems Problems, kinds []string) {
	t.Helper()
	all := fmt.Sprint([]Problem(problems))
	for _, k := range kinds {
		if !strings.Contains(all, "uses a "+k+" of") {
			t.Errorf("kind %s is not named: %s", k, all)
		}
	}
	for _, p := range problems {
		if !strings.Contains(p.Text, "of the API server") && !strings.Contains(p.Field, "volumeDevices") {
			t.Errorf("refused for something else too: %s", p)
		}
	}
}

const web = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: c
    image: busybox
`

func decodeGood(t testing.TB, text string) *v1.Pod {
	t.Helper()
	pod, _, err := Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestWarningsTellWhatIsAcceptedButLikelyNotMeant(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown field":         {web + "    colour: red\n", `spec.containers[0]: there is no field "colour"`},
		"a field in another case":  {web + "  hostnetwork: true\n", "did you mean hostNetwork?"},
		"a second document":        {web + "---\n" + web, "only the first document counts"},
		"a key twice in YAML":      {web + "    image: other\n", `key "image" stands twice`},
		"a key twice in JSON":      {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, `key "name" stands twice`},
		"a class without priority": {web + "  priorityClassName: backup\n", "set priority too"},
		"a deletion time":          {strings.Replace(web, "  name: web\n", "  name: web\n  deletionTimestamp: 2026-01-01T00:00:00Z\n", 1), "ends when the file goes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := Decode([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(warnings, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("want %q among %q", c.want, all)
			}
		})
	}
}

func TestNoWarningsForWhatIsFine(t *testing.T) {
	for name, text := range map[string]string{
		"a leading separator":    "---\n" + web,
		"comments around it":     "# a\n---\n# b\n" + web + "# c\n---\n# d\n",
		"a separator at the end": web + "---\n",
		"a directive":            "%YAML 1.1\n---\n" + web,
		"dashes in a script":     web + "    args:\n    - |\n      ---\n      a: b\n      ---\n",
		"a status":               web + "status: {phase: Running, nonsense: 1}\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := Decode([]byte(text))
			if err != nil || len(warnings) > 0 {
				t.Errorf("%q, %v", warnings, err)
			}
		})
	}
}

func TestTextThatIsNoManifest(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":            {"", "is empty"},
		"blanks":             {" \n\t\n", "is empty"},
		"comments":           {"# nothing\n", "empty but for comments"},
		"a list":             {"- a\n", "holds a list"},
		"a word":             {"hello\n", `holds the text "hello"`},
		"UTF-16":             {"\xff\xfea\x00", "UTF-16"},
		"a tab":              {"a:\n\tb: 1\n", "tabs"},
		"half a JSON object": {`{"apiVersion": "v1", "kind"`, "ends in the middle"},
		"a long kind":        {"apiVersion: v1\nkind: " + strings.Repeat("x", 300) + "\n", "xxxx…"},
		"a kind of control":  {"apiVersion: v1\nkind: \"\\a\\e[31m\"\n", `\a`},
		"a key of control":   {web + "    resources: {limits: {\"c\\tpu\": x}}\n", `limits[c\tpu]`},
		"kind as a number":   {"apiVersion: v1\nkind: 7\n", "has no kind"},
		"PodList":            {"apiVersion: v1\nkind: PodList\nitems: []\n", "file of its own"},
		"DaemonSet":          {"apiVersion: apps/v1\nkind: DaemonSet\n", "pod template"},
		"too large":          {strings.Repeat("#", MaxBytes+1), "10 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, _, err := Decode([]byte(c.text))
			if err == nil || pod != nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("want %q, got %v", c.want, err)
			}
			plainAndShort(t, err.Error())
		})
	}
}

// allocated is how many bytes f allocates in all, garbage included: more than it ever holds.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Whatever stands in a file, reading it costs a bounded amount of memory.
func TestMemoryStaysBounded(t *testing.T) {
	bomb, err := os.ReadFile(filepath.Join(badManifests, "29-alias-bomb.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	deep, err := os.ReadFile(filepath.Join(badManifests, "30-deep-nesting.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[`
	for name, c := range map[string]struct {
		text string
		mib  uint64
	}{
		"alias bomb":                      {string(bomb), 4},
		"deep nesting":                    {string(deep), 16},
		"aliases just below the limit":    {"a: &a [" + strings.Repeat("{name: c},", 1000) + "]\nb: &b [" + strings.Repeat("*a,", 300) + "]\napiVersion: v1\nkind: Pod\n", 400},
		"10 MiB of empty containers":      {pod + strings.Repeat("{},", MaxBytes/3-100) + "{}]}}", 64},
		"10 MiB of brackets":              {strings.Repeat("[", MaxBytes), 8},
		"10 MiB of JSON brackets":         {`{"a":` + strings.Repeat("[", MaxBytes-10), 8},
		"10 MiB of list in YAML":          {"a: [" + strings.Repeat("x,", MaxBytes/2-10) + "x]", 8},
		"10 MiB of dashes":                {strings.Repeat("- ", MaxBytes/2), 8},
		"10 MiB of one word":              {strings.Repeat("x", MaxBytes), 200},
		"10 MiB of zeroes":                {strings.Repeat("\x00", MaxBytes), 8},
		"10 MiB of bad keys":              {pod + "{" + strings.Repeat(`"x":1,`, MaxBytes/6-100) + `"y":2}]}}`, 64},
		"tens of thousands of containers": {pod + strings.Repeat("{},", 30_000) + "{}]}}", 300},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			b := []byte(c.text)
			got := allocated(func() { _, _, err = Decode(b) })
			if err == nil {
				t.Fatal("was accepted")
			}
			if got > c.mib<<20 {
				t.Errorf("%d MiB were allocated, at most %d", got>>20, c.mib)
			}
			t.Logf("%d KiB: %.100s", got>>10, err)
			plainAndShort(t, err.Error())
		})
	}
}

// A single amount once took the library a minute: 1e-99999999.
func TestAmountsThatWouldTakeForever(t *testing.T) {
	for _, amount := range []string{"1e-99999999", "1e99999999", strings.Repeat("9", 100_000), "1e-999999999999"} {
		_, _, err := Decode([]byte(web + "    resources: {limits: {cpu: '" + amount + "'}}\n"))
		if err == nil {
			t.Errorf("%.20s was accepted", amount)
		}
	}
	decodeGood(t, web+"    resources: {limits: {cpu: 1e3, memory: 1.5Gi, ephemeral-storage: 1E}}\n")
}

func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/manifests/*.yaml", badManifests + "/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			if b, err := os.ReadFile(file); err == nil {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		pod, _, err := Decode(b)
		if (pod == nil) != (err != nil) {
			t.Fatalf("pod %v, error %v", pod != nil, err)
		}
		if err != nil {
			plainAndShort(t, strings.ReplaceAll(err.Error(), "\n", " "))
			return
		}
		if !validUID(string(pod.UID)) && pod.UID != "" || pod.Name == "" || len(pod.Spec.Containers) == 0 {
			t.Fatalf("accepted %+v", pod)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"01-kube-apiserver", "29-huge-env", "30-many-containers"} {
		text, err := os.ReadFile("testdata/manifests/" + name + ".yaml")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Decode(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
