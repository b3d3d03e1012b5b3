package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ofAccount is a credential of a service account.
func ofAccount(user, name string) runtime.Credential {
	return runtime.Credential{Auth: runtime.Auth{Username: user}, Account: &runtime.ObjectRef{Namespace: "ns", Name: name, UID: "uid"}}
}

// Who may use an image that another pod has brought. The registry lets in user "me" and, with another secret, "too".
func TestWhoMayUseAnImage(t *testing.T) {
	renewed := of("new", "a")
	sameContent := of("me", "copy")
	for _, tt := range []struct {
		rule   string
		first  []runtime.Credential // of the pod that brings it
		second []runtime.Credential
		policy v1.PullPolicy // of the second
		pulls  int           // with the first one
		reason string
	}{
		{"pulled without any, it is for everybody", nil, nil, "", 1, ""},
		{"pulled with the node's own, too", []runtime.Credential{{Auth: runtime.Auth{Username: "me"}}}, nil, "", 1, ""},
		{"who has no credential has to pull, and fails", []runtime.Credential{of("me", "a")}, nil, "", 2, "ErrImagePull"},
		{"the same secret", []runtime.Credential{of("me", "a")}, []runtime.Credential{of("me", "a")}, "", 1, ""},
		{"the same secret with new content", []runtime.Credential{of("me", "a")}, []runtime.Credential{renewed}, "", 1, ""},
		{"another secret with the same content", []runtime.Credential{of("me", "a")}, []runtime.Credential{sameContent}, "", 1, ""},
		{"another secret that opens it too: pulled once more", []runtime.Credential{of("me", "a")}, []runtime.Credential{of("too", "b")}, "", 2, ""},
		{"another secret that does not open it", []runtime.Credential{of("me", "a")}, []runtime.Credential{of("wrong", "b")}, "", 2, "ErrImagePull"},
		{"never pulled: as if it were not here", []runtime.Credential{of("me", "a")}, nil, v1.PullNever, 1, "ErrImageNeverPull"},
		{"never pulled, with the secret", []runtime.Credential{of("me", "a")}, []runtime.Credential{of("me", "a")}, v1.PullNever, 1, ""},
		{"the same service account", []runtime.Credential{ofAccount("me", "sa")}, []runtime.Credential{ofAccount("x", "sa")}, "", 1, ""},
		{"another service account", []runtime.Credential{ofAccount("me", "sa")}, []runtime.Credential{ofAccount("too", "sb")}, "", 2, ""},
		{"always pulled", []runtime.Credential{of("me", "a")}, []runtime.Credential{of("me", "a")}, v1.PullAlways, 2, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			h := newHost()
			g := &guarded{host: h, users: []string{"me", "too"}}
			if tt.first == nil || tt.first[0].Secret == nil && tt.first[0].Account == nil {
				g.users = append(g.users, "")
			}
			s := store(t, Config{Images: g, Root: t.TempDir(), Credentials: rings{"first": tt.first, "second": tt.second}})
			if reason, message := ensure(t, s, pod("first"), "far:1", ""); reason != "" {
				t.Fatal(reason, message)
			}
			reason, message := ensure(t, s, pod("second"), "far:1", tt.policy)
			if reason != tt.reason || g.attempts != tt.pulls {
				t.Errorf("%s %s, %d pulls", reason, message, g.attempts)
			}
			if tt.reason == "" { // who was let in once is let in again
				before := g.attempts
				if reason, message := ensure(t, s, pod("second"), "far:1", v1.PullIfNotPresent); reason != "" || g.attempts != before {
					t.Errorf("once more: %s %s, %d pulls", reason, message, g.attempts)
				}
			}
		})
	}
}

// guarded lets some users in.
type guarded struct {
	*host
	users    []string
	attempts int
}

func (g *guarded) PullImage(ctx context.Context, r runtime.PullRequest) (string, error) {
	g.attempts++
	user := ""
	if r.Auth != nil {
		user = r.Auth.Username
	}
	if !slices.Contains(g.users, user) {
		return "", errors.New("unauthorized")
	}
	return g.host.PullImage(ctx, r)
}

func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		policy   Policy
		exempt   []string
		image    string
		pulled   bool
		verifies bool
	}{
		{policy: "", image: "a.io/x:1", pulled: true, verifies: true},
		{policy: "", image: "a.io/x:1", pulled: false, verifies: false},
		{policy: NeverVerifyPreloadedImages, image: "a.io/x:1", pulled: true, verifies: true},
		{policy: NeverVerify, image: "a.io/x:1", pulled: true, verifies: false},
		{policy: AlwaysVerify, image: "a.io/x:1", pulled: false, verifies: true},
		{policy: NeverVerifyAllowlistedImages, image: "a.io/x:1", verifies: true},
		{policy: NeverVerifyAllowlistedImages, exempt: []string{"a.io/x"}, image: "a.io/x:1", pulled: true, verifies: false},
		{policy: NeverVerifyAllowlistedImages, exempt: []string{"a.io/x"}, image: "a.io/x@sha256:" + strings.Repeat("a", 64), verifies: false},
		{policy: NeverVerifyAllowlistedImages, exempt: []string{"a.io/x"}, image: "a.io/xy:1", verifies: true},
		{policy: NeverVerifyAllowlistedImages, exempt: []string{"a.io/team/*"}, image: "a.io/team/x:1", verifies: false},
		{policy: NeverVerifyAllowlistedImages, exempt: []string{"a.io/team/*"}, image: "a.io/teams:1", verifies: true},
		{policy: NeverVerifyAllowlistedImages, exempt: []string{"busybox"}, image: "busybox", verifies: false},
		{policy: NeverVerifyAllowlistedImages, exempt: []string{"docker.io/library/busybox"}, image: "busybox", verifies: true},
	} {
		t.Run(fmt.Sprintf("%s %v %s %t", tt.policy, tt.exempt, tt.image, tt.pulled), func(t *testing.T) {
			v, err := newVerifier(tt.policy, tt.exempt)
			if err != nil {
				t.Fatal(err)
			}
			if got := v.verifies(tt.image, tt.pulled); got != tt.verifies {
				t.Errorf("verifies: %t", got)
			}
		})
	}
	for exempt, want := range map[string]string{
		" a.io/x": "space", "a.io/*/x": "a star is only", "a.io*": "a star is only", "": "name a registry", "/*": "name a registry",
		"a.io/x:1": "leave out tag", "A b": "image name",
	} {
		if _, err := New(Config{Images: newHost(), Exempt: []string{exempt}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", exempt, err)
		}
	}
	if _, err := New(Config{Images: newHost(), Verify: "Sometimes"}); err == nil {
		t.Error("a policy that is none")
	}
}

func TestARecordOnlyEverAllowsMore(t *testing.T) {
	p := pulledWith{}
	a, b, again, third := of("me", "b"), of("me", "a"), of("new", "b"), ofAccount("x", "sa")
	for _, c := range []*runtime.Credential{&a, &b, &again, &third} {
		next, changed := p.with(c)
		if !changed {
			t.Fatalf("%+v changes nothing", c)
		}
		p = next
	}
	want := pulledWith{
		Secrets:  []secret{{"uid-a", "ns", "a", "hash-of-me"}, {"uid-b", "ns", "b", "hash-of-new"}},
		Accounts: []account{{"uid", "ns", "sa"}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, c := range []*runtime.Credential{&b, &again, &third} {
		if _, changed := p.with(c); changed {
			t.Errorf("%+v changes something the second time", c)
		}
	}
	everybody, _ := p.with(nil)
	if diff := cmp.Diff(pulledWith{Everybody: true}, everybody); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, changed := everybody.with(&a); changed {
		t.Error("what is for everybody is narrowed")
	}
}

func TestARecordDoesNotGrowForEver(t *testing.T) {
	p := pulledWith{}
	for i := range mostSecrets {
		c := of("me", fmt.Sprint(i))
		p, _ = p.with(&c)
	}
	if ok, learned := p.opens([]runtime.Credential{of("me", "one more")}); !ok || learned != nil {
		t.Errorf("the same content: %t, %v", ok, learned)
	}
	if ok, learned := p.opens([]runtime.Credential{of("new", "7")}); ok || learned != nil {
		t.Errorf("the same name: %t, %v", ok, learned)
	}
	if ok, _ := p.opens([]runtime.Credential{{Secret: &runtime.ObjectRef{Name: "x"}}}); ok {
		t.Error("two hashes that are not known are taken for equal")
	}
}

// A node goes from one agent to the other and back: the files are those of the kubelet's own types, strictly read.
func TestFilesAreTheKubelets(t *testing.T) {
	root := t.TempDir()
	h := newHost()
	s := store(t, Config{Images: h, Root: root, Credentials: rings{"web": {of("me", "a")}}})
	if err := s.records.intend("far:1"); err != nil {
		t.Fatal(err)
	}
	var begun v1beta1.ImagePullIntent
	strictly(t, root, "pulling", "far:1", &begun)
	if begun.Image != "far:1" || begun.Kind != "ImagePullIntent" || begun.APIVersion != "kubelet.config.k8s.io/v1beta1" {
		t.Errorf("%+v", begun)
	}
	s.records.failed("far:1")
	ensure(t, s, pod("web"), "far:1", "")
	var done v1beta1.ImagePulledRecord
	strictly(t, root, "pulled", "f", &done)
	if age := time.Since(done.LastUpdatedTime.Time); age < 0 || age > time.Minute {
		t.Errorf("updated %s ago", age)
	}
	done.LastUpdatedTime = metav1.Time{}
	want := v1beta1.ImagePulledRecord{
		TypeMeta: metav1.TypeMeta{Kind: "ImagePulledRecord", APIVersion: "kubelet.config.k8s.io/v1beta1"}, ImageRef: "f",
		CredentialMapping: map[string]v1beta1.ImagePullCredentials{"far": {KubernetesSecrets: []v1beta1.ImagePullSecret{
			{UID: "uid-a", Namespace: "ns", Name: "a", CredentialHash: "hash-of-me"},
		}}},
	}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, dir := range []string{"pulling", "pulled"} {
		info, err := os.Stat(filepath.Join(root, "image_manager", dir))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(root, "image_manager", "pulling")); len(left) != 0 {
		t.Errorf("%d intents are left", len(left))
	}
}

func strictly(t *testing.T, root, dir, about string, into any) {
	t.Helper()
	b, err := os.ReadFile(folder(filepath.Join(root, "image_manager", dir)).path(about))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// Files as kubelets have written them.
func TestOlderFilesAreRead(t *testing.T) {
	root := t.TempDir()
	done := filepath.Join(root, "image_manager", "pulled")
	put(t, folder(done).path("h"), `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"h",`+
		`"credentialMapping":{"here":{"kubernetesSecrets":[{"uid":"uid-a","namespace":"ns","name":"a","credentialHash":"hash-of-me"}]}}}`)
	s := store(t, Config{Images: newHost(), Root: root, Credentials: rings{"web": {of("me", "a")}}})
	if reason, _ := ensure(t, s, pod("web"), "here:1", v1.PullNever); reason != "" {
		t.Errorf("who has the secret: %s", reason)
	}
	if reason, _ := ensure(t, s, pod("other"), "here:1", v1.PullNever); reason != "ErrImageNeverPull" {
		t.Errorf("who has not: %s", reason)
	}
	put(t, folder(done).path("h"), "{")
	if reason, _ := ensure(t, s, pod("web"), "here:1", v1.PullNever); reason != "ErrImageNeverPull" {
		t.Errorf("what cannot be read allows something: %s", reason)
	}
	if reason, message := ensure(t, s, pod("web"), "here:1", v1.PullAlways); reason != "" {
		t.Errorf("%s: %s", reason, message)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An image is for everybody if it was there before, and by no accident because an agent has ended while it was pulled.
func TestAnAgentThatEndsWhileItPulls(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		brought bool // the engine has finished it
		failing bool // the engine cannot be asked at first
	}{{"brought", true, false}, {"not brought", false, false}, {"brought, and the engine comes later", true, true}} {
		t.Run(tt.rule, func(t *testing.T) {
			root := t.TempDir()
			h := newHost()
			if err := store(t, Config{Images: h, Root: root}).records.intend("far:1"); err != nil {
				t.Fatal(err)
			}
			if tt.brought {
				h.here["far:1"] = runtime.Image{ID: "f"}
			}
			cfg := Config{Images: h, Root: root}
			off := &sometimes{host: h, off: tt.failing}
			cfg.Images = off
			s := store(t, cfg)
			if tt.failing {
				if reason, _ := ensure(t, s, pod("web"), "here:1", ""); reason != "ImageInspectError" {
					t.Error(reason)
				}
				off.off = false
			}
			if reason, message := ensure(t, s, pod("web"), "here:1", ""); reason != "" {
				t.Errorf("another image: %s %s", reason, message)
			}
			if reason, _ := ensure(t, s, pod("web"), "far:1", v1.PullNever); reason != "ErrImageNeverPull" {
				t.Errorf("it may be used without having been pulled: %q", reason)
			}
			left, _ := os.ReadDir(filepath.Join(root, "image_manager", "pulling"))
			if (len(left) == 0) != tt.brought {
				t.Errorf("%d intents are left", len(left))
			}
			if reason, message := ensure(t, s, pod("web"), "far:1", ""); reason != "" {
				t.Errorf("pulled: %s %s", reason, message)
			}
		})
	}
}

type sometimes struct {
	*host
	off bool
}

func (s *sometimes) Image(ctx context.Context, ref string) (runtime.Image, error) {
	if s.off {
		return runtime.Image{}, errors.New("away")
	}
	return s.host.Image(ctx, ref)
}

// A pull that was cut may have brought the image all the same, which then is for nobody until somebody pulls it.
func TestACutPullOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.slow = time.Minute
		s := store(t, Config{Images: h, Root: t.TempDir()})
		cut := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, _, err := s.Ensure(ctx, pod("web"), container("far:1", ""), observe.Ref{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		cut()
		h.err, h.slow = errors.New("boom"), 0
		if reason, _ := ensure(t, s, pod("web"), "far:1", ""); reason != "ErrImagePull" {
			t.Error(reason)
		}
		h.here["far:1"], h.err = runtime.Image{ID: "f"}, nil
		if reason, _ := ensure(t, s, pod("other"), "far:1", v1.PullNever); reason != "ErrImageNeverPull" {
			t.Errorf("the other pod: %q", reason)
		}
		if reason, message := ensure(t, s, pod("other"), "far:1", ""); reason != "" {
			t.Errorf("%s: %s", reason, message)
		}
		if len(s.records.cuts)+len(s.records.under) != 0 {
			t.Error("something is kept for ever")
		}
	})
}

func TestRecordsOfImagesThatAreGoneAreForgotten(t *testing.T) {
	root := t.TempDir()
	h := newHost()
	s := store(t, Config{Images: listing{h}, Root: root})
	count := func() int {
		left, _ := os.ReadDir(filepath.Join(root, "image_manager", "pulled"))
		return len(left)
	}
	put(t, folder(filepath.Join(root, "image_manager", "pulled")).path("old"),
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"old"}`)
	ensure(t, s, pod("web"), "far:1", "")
	if count() != 2 {
		t.Fatalf("%d records", count())
	}
	if _, err := s.ListImages(t.Context()); err != nil || count() != 1 {
		t.Errorf("after a listing %d records, %v", count(), err)
	}
	s.mu.Lock()
	s.holds = map[string]*held{}
	s.mu.Unlock()
	if err := s.RemoveImage(t.Context(), "f"); err != nil || count() != 0 {
		t.Errorf("after the image was removed %d records, %v", count(), err)
	}
}

type listing struct{ *host }

func (l listing) ListImages(context.Context) ([]runtime.Image, error) {
	var out []runtime.Image
	for _, img := range l.here {
		out = append(out, img)
	}
	return out, nil
}

// Whatever stands in a file: a record or an error.
func FuzzReadRecord(f *testing.F) {
	f.Add([]byte(`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"r","credentialMapping":{"a":{"nodePodsAccessible":true}}}`))
	f.Add([]byte(`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"a:1"}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if r, err := readRecord(b); err == nil {
			for _, w := range r.With {
				w.opens([]runtime.Credential{of("me", "a"), ofAccount("x", "sa")})
			}
		}
		if i, err := readIntent(b); err == nil {
			_, _ = bare(i.Image)
		}
	})
}

func BenchmarkEnsureOfAnImageThatIsHere(b *testing.B) {
	s, err := New(Config{Images: newHost(), Root: b.TempDir(), Credentials: rings{"web": {of("me", "a")}}})
	if err != nil {
		b.Fatal(err)
	}
	me := of("me", "a")
	s.records.pulled("here:1", "h", &me)
	p, c := pod("web"), container("here:1", v1.PullIfNotPresent)
	for b.Loop() {
		_, release, err := s.Ensure(b.Context(), p, c, observe.Ref{})
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}
