package keyring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

// provider is an entry of a configuration with other lines at the end.
func provider(name string, lines ...string) string {
	return "- name: " + name + "\n  matchImages: [a.io]\n  defaultCacheDuration: 1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n" +
		strings.Join(append(lines, ""), "\n")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadProviders(t *testing.T) {
	const tokens = "  tokenAttributes: {serviceAccountTokenAudience: a, requireServiceAccount: "
	for _, tt := range []struct {
		rule, text string
		names      []string
		err        string
	}{
		{rule: "one", text: head + provider("one"), names: []string{"one"}},
		{rule: "JSON", text: `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[{"name":"j","matchImages":["a.io"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1beta1"}]}`, names: []string{"j"}},
		{rule: "an older version", text: strings.Replace(head, "/v1\n", "/v1alpha1\n", 1) + provider("one"), names: []string{"one"}},
		{rule: "tokens", text: head + provider("one", tokens+"true, cacheType: Token, requiredServiceAccountAnnotationKeys: [x.io/role]}"), names: []string{"one"}},
		{rule: "tokens in an older configuration, which does not know them", text: strings.Replace(head, "/v1\n", "/v1beta1\n", 1) + provider("one", tokens+"true, cacheType: Token}"), err: "tokenAttributes need a configuration of apiVersion kubelet.config.k8s.io/v1, this"},
		{rule: "all fields", text: head + provider("one", "  args: [-v]", "  env: [{name: A, value: b}]"), names: []string{"one"}},
		{rule: "another kind", text: strings.Replace(head, "CredentialProviderConfig", "Pod", 1) + provider("one"), err: `kind "Pod"`},
		{rule: "another version", text: strings.Replace(head, "/v1\n", "/v9\n", 1) + provider("one"), err: `apiVersion "kubelet.config.k8s.io/v9"`},
		{rule: "a field that is none", text: head + provider("one", "  argz: [-v]"), err: `unknown field "argz"`},
		{rule: "a field twice", text: head + provider("one", "  args: [a]", "  args: [b]"), err: `"args" already set in map`},
		{rule: "none", text: head + "  []", err: "providers is empty"},
		{rule: "a name twice", text: head + provider("one") + provider("one"), err: "providers[1] (one): a provider of this name is there already"},
		{rule: "a name with a way in it", text: head + provider("../one"), err: "name must be the name of a file"},
		{rule: "no name", text: head + provider(`""`), err: "name must be the name of a file"},
		{rule: "dots", text: head + provider(".."), err: "name must be the name of a file"},
		{rule: "no images", text: strings.Replace(head+provider("one"), "[a.io]", "[]", 1), err: "matchImages must name at least one"},
		{rule: "an image that is none", text: strings.Replace(head+provider("one"), "[a.io]", `["a.io:x"]`, 1), err: `matchImages: "a.io:x" is no host with a path`},
		{rule: "no duration", text: strings.Replace(head+provider("one"), "  defaultCacheDuration: 1h\n", "", 1), err: "defaultCacheDuration must be set"},
		{rule: "a negative one", text: strings.Replace(head+provider("one"), "1h", "-1h", 1), err: "defaultCacheDuration must be set and not negative"},
		{rule: "tokens, and nothing said", text: head + provider("one", "  tokenAttributes: {}"), err: "serviceAccountTokenAudience must be set"},
		{rule: "tokens, how they are kept not said", text: head + provider("one", tokens+"true}"), err: `cacheType "" must be`},
		{rule: "annotations of accounts that need not be", text: head + provider("one", tokens+"false, cacheType: Token, requiredServiceAccountAnnotationKeys: [x]}"), err: "need requireServiceAccount: true"},
		{rule: "an annotation twice", text: head + provider("one", tokens+"true, cacheType: Token, requiredServiceAccountAnnotationKeys: [x], optionalServiceAccountAnnotationKeys: [x]}"), err: `annotation "x" is there twice`},
		{rule: "an annotation that is none", text: head + provider("one", tokens+"true, cacheType: Token, optionalServiceAccountAnnotationKeys: ['a b']}"), err: `annotation "a b"`},
		{rule: "tokens with an older protocol", text: strings.Replace(head+provider("one", tokens+"true, cacheType: Token}"), "credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", 1), err: "tokenAttributes need apiVersion"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "providers.yaml")
			write(t, path, tt.text)
			got, hash, err := ReadProviders(path)
			var names []string
			for _, p := range got {
				names = append(names, p.Name)
			}
			if diff := cmp.Diff(tt.names, names); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			switch {
			case tt.err == "" && (err != nil || !strings.HasPrefix(hash, "sha256:")):
				t.Errorf("hash %q, %v", hash, err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), path)):
				t.Errorf("error %v does not say %q", err, tt.err)
			}
		})
	}
}

func TestReadProvidersOfADirectory(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := ReadProviders(dir); err == nil || !strings.Contains(err.Error(), "has no file .json, .yaml or .yml") {
		t.Error(err)
	}
	write(t, filepath.Join(dir, "2.yml"), head+provider("second"))
	write(t, filepath.Join(dir, "1.yaml"), head+provider("first"))
	write(t, filepath.Join(dir, "0.txt"), "no YAML {")
	if err := os.MkdirAll(filepath.Join(dir, "3.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, before, err := ReadProviders(dir)
	if err != nil || len(got) != 2 || got[0].Name != "first" || got[1].Name != "second" || got[0].DefaultCacheDuration.Duration != time.Hour {
		t.Fatalf("%v, %v", got, err)
	}
	write(t, filepath.Join(dir, "2.yml"), head+provider("third"))
	if _, after, err := ReadProviders(dir); err != nil || before == after {
		t.Errorf("hash %s, %v", after, err)
	}
	write(t, filepath.Join(dir, "2.yml"), head+provider("first"))
	if _, _, err := ReadProviders(dir); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Error(err)
	}
	if _, _, err := ReadProviders(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for what is not there")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(head + provider("one")))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if providers, err := decode(b); err == nil {
			_ = check(providers)
		}
	})
}
