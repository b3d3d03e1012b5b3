package keyring

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// secrets of a namespace, by name; nil: broken.
func secrets(contents map[string]string) func(context.Context, string, string) (*v1.Secret, error) {
	return func(_ context.Context, namespace, name string) (*v1.Secret, error) {
		text, ok := contents[name]
		if name == "nil" {
			return nil, nil
		}
		if !ok {
			return nil, runtime.ErrNotFound
		}
		s := &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(text)}}
		s.Namespace, s.Name, s.UID = namespace, name, types.UID("uid-"+name)
		return s, nil
	}
}

func withSecrets(names ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "ns", "web", "u"
	for _, n := range names {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: n})
	}
	return p
}

func users(list []runtime.Credential) (out []string) {
	for _, c := range list {
		out = append(out, c.Username)
	}
	return out
}

// program puts a provider into a directory that answers with a user.
func program(t *testing.T, dir, name, commands string) Provider {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+commands+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return Provider{Name: name, APIVersion: protocol, MatchImages: []string{"a.io"}, DefaultCacheDuration: &metav1.Duration{}}
}

func says(user string) string {
	return `echo '{"apiVersion":"` + protocol + `","kind":"CredentialProviderResponse","cacheKeyType":"Image","auth":{"a.io":{"username":"` + user + `"}}}'`
}

func TestSecretsThenFilesThenProviders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	write(t, file, `{"auths":{"a.io":{"username":"node"},"a.io/x":{"username":"node-x"}}}`)
	k, err := New(Config{
		Secret: secrets(map[string]string{
			"one": `{"auths":{"a.io":{"username":"one"},"b.io":{"username":"other"}}}`,
			"two": `{"auths":{"a.io":{"username":"two"},"a.io/x":{"username":"two-x"}}}`,
		}),
		Files: []string{file}, Dir: dir, Hash: "sha256:1",
		Providers: []Provider{program(t, dir, "p", says("p")), program(t, dir, "q", says("q"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := k.Lookup(t.Context(), withSecrets("one", "two"), "a.io/x")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"two-x", "one", "two", "node-x", "node", "p", "q"}, users(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if want := (runtime.ObjectRef{Namespace: "ns", Name: "one", UID: "uid-one"}); got[1].Secret == nil || *got[1].Secret != want || got[1].Hash == "" {
		t.Errorf("%+v", got[1])
	}
	if got[3].Secret != nil || got[5].Secret != nil || got[5].Account != nil {
		t.Error("what is the node's own is said to be a pod's")
	}
	if got, _, err := k.Lookup(t.Context(), withSecrets(), "c.io/x"); err != nil || len(got) != 0 {
		t.Errorf("another registry: %v, %v", got, err)
	}
}

func TestAMissingSecretIsNoError(t *testing.T) {
	k, err := New(Config{Secret: secrets(map[string]string{"one": `{"auths":{"a.io":{"username":"one"}}}`})})
	if err != nil {
		t.Fatal(err)
	}
	got, missing, err := k.Lookup(t.Context(), withSecrets("gone", "", "one", "nil"), "a.io/x")
	if err != nil || len(got) != 1 || !slices.Equal(missing, []string{"gone", "nil"}) {
		t.Errorf("%v, missing %q, %v", got, missing, err)
	}
}

func TestABrokenSecretIsAnError(t *testing.T) {
	k, err := New(Config{Secret: secrets(map[string]string{"one": "{"})})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Lookup(t.Context(), withSecrets("one"), "a.io/x"); err == nil || !strings.Contains(err.Error(), "image pull secret ns/one") {
		t.Error(err)
	}
}

func TestAProviderThatFailsCostsNobodyElseAnything(t *testing.T) {
	dir := t.TempDir()
	k, err := New(Config{Dir: dir, Providers: []Provider{program(t, dir, "bad", "exit 1"), program(t, dir, "good", says("good"))}})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := k.Lookup(t.Context(), withSecrets(), "a.io/x"); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	hanging, err := New(Config{Dir: dir, Providers: []Provider{program(t, dir, "slow", "sleep 600")}})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := hanging.Lookup(t.Context(), withSecrets(), "b.io/x"); err != nil || len(got) != 0 {
		t.Errorf("an image that it is not asked about: %v, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := hanging.Lookup(ctx, withSecrets(), "a.io/x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an image that it is asked about: %v", err)
	}
}

func TestNewRefusesAProviderWithoutAProgram(t *testing.T) {
	dir := t.TempDir()
	p := program(t, dir, "p", "true")
	if err := os.Chmod(filepath.Join(dir, "p"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p", "none"} {
		p.Name = name
		if _, err := New(Config{Dir: dir, Providers: []Provider{p}}); err == nil || !strings.Contains(err.Error(), "credential provider "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
