package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kubelet/config/v1beta1"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// write puts files into a new folder and gives it back.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines are warnings without the folder they are in.
func lines(dir string, warnings []Warning) string {
	var out []string
	for _, w := range warnings {
		out = append(out, strings.ReplaceAll(w.String(), dir+"/", ""))
	}
	return strings.Join(out, "\n")
}

func TestNoFileIsAnEmptyFile(t *testing.T) {
	c, warnings, err := Load(Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if *c.Authentication.Anonymous.Enabled || c.Authorization.Mode != v1beta1.KubeletAuthorizationModeWebhook || c.ReadOnlyPort != 0 {
		t.Errorf("everybody is let in: %+v %+v, read-only port %d", c.Authentication, c.Authorization, c.ReadOnlyPort)
	}
	if c.EvictionHard["memory.available"] != "100Mi" {
		t.Errorf("nothing is defended: %v", c.EvictionHard)
	}
	if err := Validate(c); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestLoadWarns(t *testing.T) {
	for _, c := range []struct{ rule, content, want string }{
		{"an unknown field, with its neighbour", head + "maxPod: 3", "k.yaml: maxPod: is no field of KubeletConfiguration v1beta1; it has no effect. Is maxPods meant?"},
		{"letter case matters", head + "MaxPods: 3", "k.yaml: MaxPods: is no field of KubeletConfiguration v1beta1; it has no effect. Is maxPods meant?"},
		{"an unknown field inside", head + "authentication: {x509: {clientCaFiles: /x}}", "k.yaml: authentication.x509.clientCaFiles: is no field of KubeletConfiguration v1beta1; it has no effect. Is authentication.x509.clientCAFile meant?"},
		{"one that is like nothing", head + "frobnicate: true", "k.yaml: frobnicate: is no field of KubeletConfiguration v1beta1; it has no effect"},
		{"a field given twice in YAML", head + "maxPods: 3\nport: 1\nmaxPods: 4", `k.yaml: maxPods: is given twice, again in line 5; the last one counts`},
		{"a field given twice in JSON", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","authentication":{"anonymous":{"enabled":true,"enabled":false}}}`, `k.yaml: authentication.anonymous.enabled: is given twice; the last one counts`},
		{"a second document", "# comment\n---\n" + head + "maxPods: 3\n---\nport: 1", "k.yaml holds more than one document; only the first counts"},
		{"a marker at the head is no second document", "---\n" + head, ""},
		{"a null is as if not there", head + "maxPods: null", ""},
		{"one in a list", head + "registerWithTaints: [{key: a, effect: NoSchedule, color: red}]", "k.yaml: registerWithTaints[0].color: is no field of KubeletConfiguration v1beta1; it has no effect"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := write(t, map[string]string{"k.yaml": c.content})
			_, warnings, err := Load(Options{File: filepath.Join(dir, "k.yaml")})
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(dir, warnings); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct{ rule, content, want string }{
		{"an empty file", " \n", `k.yaml: is empty; write at least "apiVersion: kubelet.config.k8s.io/v1beta1" and "kind: KubeletConfiguration"`},
		{"comments alone", "# nothing", `k.yaml: holds no fields; write at least "apiVersion: kubelet.config.k8s.io/v1beta1" and "kind: KubeletConfiguration"`},
		{"no kind", "maxPods: 3", "k.yaml: kind: is missing; it must be KubeletConfiguration"},
		{"another kind", "apiVersion: v1\nkind: Pod", `k.yaml: kind: is "Pod"; it must be KubeletConfiguration`},
		{"another version", "apiVersion: kubelet.config.k8s.io/v1alpha1\nkind: KubeletConfiguration", `k.yaml: apiVersion: is "kubelet.config.k8s.io/v1alpha1"; it must be kubelet.config.k8s.io/v1beta1`},
		{"what is neither", "a: [", "k.yaml: is neither JSON nor YAML: yaml: line 1: did not find expected node content"},
		{"a number in quotes", head + `maxPods: "110"`, `k.yaml: maxPods: is "110"; it must be a whole number (int32), without quotes`},
		{"a number that is too large", head + `maxPods: 3000000000`, `k.yaml: maxPods: is 3000000000; it must be a whole number (int32), without quotes`},
		{"a fraction", head + `maxPods: 1.5`, `k.yaml: maxPods: is 1.5; it must be a whole number (int32), without quotes`},
		{"a duration without a unit", head + "syncFrequency: 60", `k.yaml: syncFrequency: is 60; it must be a duration with its unit, such as "10s" or "1h30m"`},
		{"a wrong duration", head + "syncFrequency: 60 seconds", `k.yaml: syncFrequency: is "60 seconds"; it must be a duration with its unit, such as "10s" or "1h30m"`},
		{"a truth in quotes", head + `failSwapOn: "false"`, `k.yaml: failSwapOn: is "false"; it must be true or false, without quotes`},
		{"a text for a list", head + `clusterDNS: 10.96.0.10`, `k.yaml: clusterDNS: is "10.96.0.10"; it must be a list, each item a text; put it in quotes`},
		{"a number for a text in a map", head + "evictionHard:\n  pid.available: 100", `k.yaml: evictionHard.pid.available: is 100; it must be a text; put it in quotes`},
		{"all at once", head + "maxPods: x\nport: z", "k.yaml: maxPods: is \"x\"; it must be a whole number (int32), without quotes\nk.yaml: port: is \"z\"; it must be a whole number (int32), without quotes"},
		{"an object for a truth", head + "failSwapOn: {}", `k.yaml: failSwapOn: is {}; it must be true or false, without quotes`},
		{"a text for an object", head + "authentication: none", `k.yaml: authentication: is "none"; it must be an object with fields of its own: anonymous, webhook, x509`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := write(t, map[string]string{"k.yaml": c.content})
			_, _, err := Load(Options{File: filepath.Join(dir, "k.yaml")})
			if err == nil {
				t.Fatal("accepted")
			}
			got := strings.TrimPrefix(strings.ReplaceAll(err.Error(), dir+"/", ""), "read the configuration: ")
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
