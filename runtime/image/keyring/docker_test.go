package keyring

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		rule, text string
		old        bool
		want       map[string]login
		err        string
	}{
		{rule: "user and password", text: `{"auths":{"a.io":{"username":"u","password":"p","email":"e@x"}}}`, want: map[string]login{"a.io": {"u", "p", "e@x"}}},
		{rule: "the old format has no auths", text: `{"a.io":{"username":"u","password":"p"}}`, old: true, want: map[string]login{"a.io": {Username: "u", Password: "p"}}},
		{rule: "auth counts before both", text: `{"auths":{"a.io":{"username":"x","password":"y","auth":"dTpwOnE="}}}`, want: map[string]login{"a.io": {Username: "u", Password: "p:q"}}},
		{rule: "auth without padding", text: `{"auths":{"a.io":{"auth":"dTpwOnE"}}}`, want: map[string]login{"a.io": {Username: "u", Password: "p:q"}}},
		{rule: "keys in other letters", text: `{"Auths":{"a.io":{"Username":"u"}}}`, want: map[string]login{"a.io": {Username: "u"}}},
		{rule: "what docker has beside auths", text: `{"credsStore":"desktop","HttpHeaders":{"a":"b"},"auths":{}}`, want: map[string]login{}},
		{rule: "nothing about registries", text: `{"credHelpers":{}}`},
		{rule: "not JSON", text: `{"auths":{"a.io":{"password":"top-secret`, err: "is not JSON (at byte 40)"},
		{rule: "another form", text: `{"auths":{"a.io":{"password":["top-secret"]}}}`, err: `is not of the form {"auths": {"REGISTRY": {"auth": "base64 of USER:PASSWORD"}}}`},
		{rule: "auth that is not base64", text: `{"a.io":{"auth":"top-secret!"}}`, old: true, err: `is not of the form {"REGISTRY": {"auth": "base64 of USER:PASSWORD"}}`},
		{rule: "auth without a colon", text: `{"a.io":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("top-secret")) + `"}}`, old: true, err: "is not of the form"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			got, err := parse([]byte(tt.text), tt.old)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "top-secret") {
					t.Errorf("error %v", err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		})
	}
}

// The records of pulled images hold this hash, so it must be the kubelet's: of the JSON of what is set.
func TestHash(t *testing.T) {
	for want, l := range map[string]login{
		"edbd57ca9372e64eb1c9070ecf3a049ac553596b0529acf034c7a71d4e618e88": {Username: "u", Password: "p"},
		"81ca68cdff03c27e85aa0907582586fc0609858994808ba6e7b4edf8ca5924d1": {Username: "u", Password: "p", Email: "e@x"},
		"7a53a2a4b05f0e7df21488c0d7deb511fbd5f5d4c25b96ee72d515cd9a20b8e0": {Username: "_json_key", Password: "a&b"},
	} {
		if got := l.hash(); got != want {
			t.Errorf("%v: %s", l, got)
		}
	}
}

func TestOfSecret(t *testing.T) {
	of := func(kind v1.SecretType, key, text string) *v1.Secret {
		s := &v1.Secret{Type: kind, Data: map[string][]byte{key: []byte(text)}}
		s.Namespace, s.Name = "ns", "pull"
		return s
	}
	const newer, older = `{"auths":{"a.io":{"username":"u"}}}`, `{"a.io":{"username":"u"}}`
	for _, tt := range []struct {
		rule   string
		secret *v1.Secret
		found  int
		err    string
	}{
		{"the newer type", of(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, newer), 1, ""},
		{"the older type", of(v1.SecretTypeDockercfg, v1.DockerConfigKey, older), 1, ""},
		{"another type", of(v1.SecretTypeOpaque, v1.DockerConfigJsonKey, newer), 0, ""},
		{"the key of the other type", of(v1.SecretTypeDockercfg, v1.DockerConfigJsonKey, newer), 0, ""},
		{"empty", of(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, ""), 0, ""},
		{"broken", of(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, "{"), 0, "image pull secret ns/pull: key .dockerconfigjson is not JSON"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			got, err := ofSecret(tt.secret)
			if len(got) != tt.found || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestTheFirstFileThatCanBeReadCountsForFiveMinutes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	broken := write("broken.json", "{")
	second := write(".dockercfg", `{"a.io":{"username":"one"}}`)
	third := write("config.json", `{"auths":{"a.io":{"username":"three"}}}`)
	synctest.Test(t, func(t *testing.T) {
		f := files{paths: []string{filepath.Join(dir, "none"), broken, second, third}}
		got, skipped := f.read(time.Now())
		if got["a.io"].Username != "one" || skipped == nil || !strings.Contains(skipped.Error(), broken) {
			t.Errorf("%v, %v", got, skipped)
		}
		write(".dockercfg", `{"a.io":{"username":"two"}}`)
		if got, skipped = f.read(time.Now()); got["a.io"].Username != "one" || skipped != nil {
			t.Errorf("after a moment: %v, %v", got, skipped)
		}
		time.Sleep(fileAge)
		if got, _ = f.read(time.Now()); got["a.io"].Username != "two" {
			t.Errorf("after five minutes: %v", got)
		}
	})
}

func TestNodeFilesAreTheKubelets(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	want := []string{
		"/var/lib/kubelet/config.json", "config.json", "/home/me/.docker/config.json", "/.docker/config.json",
		"/var/lib/kubelet/.dockercfg", ".dockercfg", "/home/me/.dockercfg", "/.dockercfg",
	}
	if diff := cmp.Diff(want, NodeFiles("/var/lib/kubelet")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Whatever stands in a secret: an answer or an error that shows nothing of it.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"auths":{"a.io":{"auth":"dTpwOnE="}}}`))
	f.Add([]byte(`{"a.io":{"username":"u","password":"p"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, old := range []bool{false, true} {
			entries, err := parse(b, old)
			if err != nil && entries != nil {
				t.Error("both")
			}
			for name := range entries {
				if key, ok := keyOf(name); ok {
					matches(key, key)
				}
			}
		}
	})
}
