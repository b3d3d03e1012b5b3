package imagepull

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	kit "github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/image/keyring"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/cluster/registry"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// place is a registry on loopback that only "reader" may read, and a containerd that knows the way to it.
type place struct {
	host   string
	dir    string // of the registry's images
	asked  atomic.Int64
	engine *cri.Engine
}

func open(t *testing.T) *place {
	t.Helper()
	b := bed.ForTest(t)
	p := &place{dir: t.TempDir()}
	guarded := registry.Handler(p.dir, "reader:secret")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		guarded.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.host = strings.TrimPrefix(server.URL, "http://")
	hosts := filepath.Join(b.Dir(), "registry", p.host)
	if err := os.MkdirAll(hosts, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(hosts) })
	if err := os.WriteFile(filepath.Join(hosts, "hosts.toml"), fmt.Appendf(nil, "[host.%q]\n", server.URL), 0o644); err != nil {
		t.Fatal(err)
	}
	conn, err := cri.Dial(b.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if p.engine, err = cri.New(cri.Config{Runtime: conn}); err != nil {
		t.Fatal(err)
	}
	return p
}

// add puts an image that is like no other into the registry, and takes it away from containerd in the end.
func (p *place) add(t *testing.T, name string) string {
	t.Helper()
	ref := p.host + "/" + name
	random, err := images.Random(ref, 32)
	if err != nil {
		t.Fatal(err)
	}
	if err := registry.Add(p.dir, ref, random.Data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if img, err := p.engine.Image(ctx, ref); err == nil {
			_ = p.engine.RemoveImage(ctx, img.ID)
		}
	})
	return ref
}

// pod is one with pull secrets.
func pod(name string, secrets ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
	for _, s := range secrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
	}
	return p
}

// agent is a store as a program assembles it; every secret holds the password "secret", but for "wrong".
func (p *place) agent(t *testing.T, root string, c keyring.Config) *image.Store {
	t.Helper()
	c.Secret = func(_ context.Context, namespace, name string) (*v1.Secret, error) {
		password := "secret"
		switch name {
		case "wrong":
			password = "guess"
		case "gone":
			return nil, kit.ErrNotFound
		}
		s := &v1.Secret{Type: v1.SecretTypeDockerConfigJson}
		s.Namespace, s.Name, s.UID = namespace, name, types.UID("uid-"+name)
		s.Data = map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"username":"reader","password":%q}}}`, p.host, password)}
		return s, nil
	}
	keys, err := keyring.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := image.New(image.Config{Images: p.engine, Credentials: keys, Root: root})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ensure is the reason why a pod does not get its image, and how often the registry was asked.
func (p *place) ensure(t *testing.T, s *image.Store, pod *v1.Pod, ref string, policy v1.PullPolicy) (reason string, asked int64) {
	t.Helper()
	before := p.asked.Load()
	_, release, err := s.Ensure(t.Context(), pod, &v1.Container{Name: "c", Image: ref, ImagePullPolicy: policy}, observe.Ref{})
	asked = p.asked.Load() - before
	if err == nil {
		release()
		return "", asked
	}
	w, ok := errors.AsType[*kit.WaitingError](err)
	if !ok {
		t.Fatal(err)
	}
	t.Logf("%s: %v", pod.Name, err)
	return w.Reason, asked
}

func TestARegistryThatWantsToKnowWhoAsks(t *testing.T) {
	p, root := open(t), t.TempDir()
	ref := p.add(t, "team/web:1")
	s := p.agent(t, root, keyring.Config{})
	for _, step := range []struct {
		rule   string
		pod    *v1.Pod
		policy v1.PullPolicy
		reason string
		asks   bool
	}{
		{"nobody gets it without a secret", pod("a"), v1.PullIfNotPresent, "ErrImagePull", true},
		{"nor with a wrong one", pod("b", "wrong", "gone"), v1.PullIfNotPresent, "ErrImagePull", true},
		{"a wrong one before the right one does no harm", pod("c", "wrong", "right"), v1.PullIfNotPresent, "", true},
		{"who has it once need not ask again", pod("c", "wrong", "right"), v1.PullIfNotPresent, "", false},
		{"nor need another pod with that secret", pod("d", "right"), v1.PullNever, "", false},
		{"nor one whose secret says the same", pod("e", "copy"), v1.PullIfNotPresent, "", false},
		{"who has no secret must ask, and is refused", pod("f"), v1.PullIfNotPresent, "ErrImagePull", true},
		{"or is told that it is not there", pod("g", "wrong"), v1.PullNever, "ErrImageNeverPull", false},
	} {
		reason, asked := p.ensure(t, s, step.pod, ref, step.policy)
		if reason != step.reason || (asked > 0) != step.asks {
			t.Errorf("%s: reason %q, asked %d times", step.rule, reason, asked)
		}
	}
	again := p.agent(t, root, keyring.Config{}) // the agent starts anew
	if reason, asked := p.ensure(t, again, pod("h", "right"), ref, v1.PullIfNotPresent); reason != "" || asked != 0 {
		t.Errorf("after a restart, with the secret: %q, asked %d times", reason, asked)
	}
	if reason, _ := p.ensure(t, again, pod("i"), ref, v1.PullNever); reason != "ErrImageNeverPull" {
		t.Errorf("after a restart, without: %q", reason)
	}
}

func TestACredentialProviderOpensARegistry(t *testing.T) {
	p := open(t)
	ref := p.add(t, "team/provided:1")
	dir := t.TempDir()
	const protocol = "credentialprovider.kubelet.k8s.io/v1"
	script := fmt.Sprintf("#!/bin/sh\ncat >%s/asked\necho '{\"apiVersion\":\"%s\",\"kind\":\"CredentialProviderResponse\",\"cacheKeyType\":\"Registry\",\"auth\":{\"%s\":{\"username\":\"reader\",\"password\":\"secret\"}}}'\n",
		dir, protocol, p.host)
	if err := os.WriteFile(filepath.Join(dir, "login"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "providers.yaml")
	text := fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- {name: login, matchImages: ['%s'], defaultCacheDuration: 1h, apiVersion: %s}\n", p.host, protocol)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	providers, hash, err := keyring.ReadProviders(config)
	if err != nil {
		t.Fatal(err)
	}
	s := p.agent(t, t.TempDir(), keyring.Config{Providers: providers, Hash: hash, Dir: dir})
	if reason, _ := p.ensure(t, s, pod("a"), ref, v1.PullIfNotPresent); reason != "" {
		t.Errorf("reason %q", reason)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil || !strings.Contains(string(asked), p.host+"/team/provided\"") {
		t.Errorf("the provider was asked %s, %v", asked, err)
	}
	if reason, _ := p.ensure(t, s, pod("b"), ref, v1.PullNever); reason != "" {
		t.Errorf("what the node's own credentials opened is for everybody: reason %q", reason)
	}
}
