package volume_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// bundles are all there are.
type bundles struct {
	mu  sync.Mutex
	all []*certv1.ClusterTrustBundle
}

func (b *bundles) Bundles(context.Context) ([]*certv1.ClusterTrustBundle, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all, nil
}

func block(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

func bundle(name, signer, label, text string) *certv1.ClusterTrustBundle {
	return &certv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"for": label}},
		Spec:       certv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text},
	}
}

func TestTrustBundles(t *testing.T) {
	has := &bundles{all: []*certv1.ClusterTrustBundle{
		bundle("one", "", "x", "a note\n"+block("1")+block("2")),
		bundle("s:a", "s", "x", block("3")+block("1")),
		bundle("s:b", "s", "y", block("4")),
	}}
	label := func(v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"for": v}}
	}
	for _, c := range []struct {
		rule  string
		means v1.ClusterTrustBundleProjection
		want  string // the file; empty: an error
	}{
		{"one by its name, without what else stands there", v1.ClusterTrustBundleProjection{Name: new("one")}, block("1") + block("2")},
		{"those of a signer with the labels", v1.ClusterTrustBundleProjection{SignerName: new("s"), LabelSelector: label("x")}, block("1") + block("3")},
		{"all of a signer with an empty selector, each certificate once", v1.ClusterTrustBundleProjection{SignerName: new("s"), LabelSelector: &metav1.LabelSelector{}}, block("1") + block("3") + block("4")},
		{"none without a selector", v1.ClusterTrustBundleProjection{SignerName: new("s")}, ""},
		{"none of that name", v1.ClusterTrustBundleProjection{Name: new("two")}, ""},
		{"none of that signer", v1.ClusterTrustBundleProjection{SignerName: new("other"), LabelSelector: &metav1.LabelSelector{}}, ""},
	} {
		for _, optional := range []bool{false, true} {
			t.Run(c.rule, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					newCluster().run(t, "", func(r *rig) {
						means := c.means
						means.Path, means.Optional = "ca.pem", &optional
						pod := podWith("u1", projected("trust", v1.VolumeProjection{ClusterTrustBundle: &means}))
						if c.want == "" && !optional {
							if _, err := r.Mount(t.Context(), pod); !errors.Is(err, runtime.ErrNotFound) {
								t.Errorf("error %v", err)
							}
							return
						}
						if diff := cmp.Diff(map[string]string{"ca.pem": "rw-r--r-- " + c.want}, visible(t, r.in(t, pod, "trust"))); diff != "" {
							t.Errorf("(-want +got)\n%s", diff)
						}
					}, func(cfg *volume.Config) { cfg.Bundles = has })
				})
			})
		}
	}
}

func TestTrustFollowsItsBundles(t *testing.T) {
	has := &bundles{all: []*certv1.ClusterTrustBundle{bundle("one", "", "x", block("1"))}}
	synctest.Test(t, func(t *testing.T) {
		newCluster().run(t, "", func(r *rig) {
			dir := r.in(t, podWith("u1", projected("trust", v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("one"), Path: "ca"}})), "trust")
			has.mu.Lock()
			has.all = []*certv1.ClusterTrustBundle{bundle("one", "", "x", block("2"))}
			has.mu.Unlock()
			r.set("ClusterTrustBundle//", has)
			synctest.Wait()
			if got := read(t, dir+"/ca"); got != block("2") {
				t.Errorf("got %s", got)
			}
		}, func(cfg *volume.Config) { cfg.Bundles = has })
	})
}

// signer issues certificates after a while, or refuses.
type signer struct {
	mu     sync.Mutex
	keys   []crypto.Signer
	asked  int
	after  int // answers in progress before one is issued
	refuse bool
	life   time.Duration
	ends   time.Duration // of the certificate; 0: it is none that anybody could read
}

// leaf is the first certificate of a chain.
func (s *signer) leaf() string {
	if s.ends == 0 {
		return block("leaf")
	}
	key := s.keys[len(s.keys)-1]
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(s.ends)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return err.Error()
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (s *signer) RequestCertificate(_ context.Context, _ *v1.Pod, _ *v1.PodCertificateProjection, key crypto.Signer) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.asked = append(s.keys, key), 0
	return "req", nil
}

func (s *signer) IssuedCertificate(context.Context, string, string) (string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	switch {
	case s.refuse:
		return "", time.Time{}, &runtime.Rejection{Reason: "Denied", Message: "not you"}
	case s.asked <= s.after:
		return "", time.Time{}, runtime.ErrInProgress
	}
	return "from the signer\n" + s.leaf() + block("ca"), time.Now().Add(s.life), nil
}

func (s *signer) requests() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

func certificateOf(keyType string) v1.VolumeProjection {
	return v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{
		SignerName: "example.com/s", KeyType: keyType, CredentialBundlePath: "both.pem", KeyPath: "key.pem", CertificateChainPath: "chain.pem",
	}}
}

func (s *signer) bubble(t *testing.T, act func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		newCluster().run(t, "", act, func(cfg *volume.Config) { cfg.Certificates = s })
	})
}

func TestCertificatesOfPods(t *testing.T) {
	for kind, is := range map[string]func(any) bool{
		"RSA3072":   func(k any) bool { r, ok := k.(*rsa.PrivateKey); return ok && r.N.BitLen() == 3072 },
		"ECDSAP256": func(k any) bool { e, ok := k.(*ecdsa.PrivateKey); return ok && e.Curve.Params().BitSize == 256 },
		"ECDSAP384": func(k any) bool { e, ok := k.(*ecdsa.PrivateKey); return ok && e.Curve.Params().BitSize == 384 },
		"ECDSAP521": func(k any) bool { e, ok := k.(*ecdsa.PrivateKey); return ok && e.Curve.Params().BitSize == 521 },
		"ED25519":   func(k any) bool { _, ok := k.(ed25519.PrivateKey); return ok },
	} {
		t.Run(kind, func(t *testing.T) {
			s := &signer{life: time.Hour}
			s.bubble(t, func(r *rig) {
				t := r.t
				dir := r.in(t, podWith("u1", projected("id", certificateOf(kind))), "id")
				key, chain := read(t, dir+"/key.pem"), read(t, dir+"/chain.pem")
				if read(t, dir+"/both.pem") != key+chain || chain != block("leaf")+block("ca") {
					t.Errorf("key %s chain %s", key, chain)
				}
				der, _ := pem.Decode([]byte(key))
				if der == nil || der.Type != "PRIVATE KEY" {
					t.Fatalf("key %s", key)
				}
				if k, err := x509.ParsePKCS8PrivateKey(der.Bytes); err != nil || !is(k) {
					t.Errorf("%T %v", k, err)
				}
			})
		})
	}
}

func TestAPodWaitsForItsCertificateAndGetsTheNextInTime(t *testing.T) {
	s := &signer{after: 2, life: time.Hour}
	s.bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", projected("id", certificateOf("ECDSAP256")))
		if _, err := r.Mount(t.Context(), pod); !errors.Is(err, runtime.ErrInProgress) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if r.wakes() != 1 {
			t.Errorf("woken %d times", r.wakes())
		}
		dir := r.in(t, pod, "id")
		first := read(t, dir+"/key.pem")
		time.Sleep(time.Hour + 6*time.Minute)
		if n := s.requests(); n != 2 || read(t, dir+"/key.pem") == first {
			t.Errorf("%d requests; another key: %v", n, read(t, dir+"/key.pem") != first)
		}
	})
}

func TestACertificateThatNobodyRenewsIsToldOf(t *testing.T) {
	s := &signer{life: time.Hour, ends: 2 * time.Hour}
	decide := func(after int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.after = after
	}
	s.bubble(t, func(r *rig) {
		t := r.t
		r.in(t, podWith("u1", projected("id", certificateOf("ED25519"))), "id")
		decide(1 << 30)
		for _, step := range []struct {
			wait time.Duration
			told []string
		}{
			{time.Hour + 9*time.Minute, nil},
			{3 * time.Minute, []string{"CertificateOverdueForRefresh PodCertificate refresh overdue"}},
			{47 * time.Minute, []string{"CertificateOverdueForRefresh"}},
			{3 * time.Minute, []string{"CertificateOverdueForRefresh", "CertificateExpired PodCertificate expired: certificate of source 0 of volume \"id\": "}},
			{time.Hour, []string{"CertificateOverdueForRefresh", "CertificateExpired"}},
		} {
			time.Sleep(step.wait)
			if told := r.told(); !slices.EqualFunc(told, step.told, strings.Contains) {
				t.Fatalf("after %v: %q, want %q", step.wait, told, step.told)
			}
		}
		decide(0)
		time.Sleep(time.Hour) // another one, in its prime
		decide(1 << 30)
		time.Sleep(30 * time.Minute)
		if told := r.told(); len(told) != 3 || !strings.Contains(told[2], "CertificateOverdue") {
			t.Errorf("%q", told)
		}
	})
}

// The clock of this host is hours ahead, or the signer's is behind: what was issued is over when it comes.
func TestACertificateThatIsOverAtOnceIsNotAskedForWithoutEnd(t *testing.T) {
	s := &signer{life: -3 * time.Hour}
	s.bubble(t, func(r *rig) {
		_, _ = r.Mount(r.t.Context(), podWith("u1", projected("id", certificateOf("ED25519"))))
		time.Sleep(time.Hour)
		if n := s.requests(); n < 2 || n > 13 {
			r.t.Errorf("%d requests in an hour", n)
		}
	})
}

func TestARefusedCertificateIsNotAskedForAgain(t *testing.T) {
	s := &signer{refuse: true}
	s.bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", projected("id", certificateOf("ED25519")))
		for range 5 {
			if _, err := r.Mount(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "not you") {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if n := s.requests(); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestARequestNobodyDecidesIsMadeAnew(t *testing.T) {
	s := &signer{after: 1 << 30}
	s.bubble(t, func(r *rig) {
		t := r.t
		_, _ = r.Mount(t.Context(), podWith("u1", projected("id", certificateOf("ED25519"))))
		time.Sleep(15 * time.Minute)
		if n := s.requests(); n != 2 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestAnUnknownKindOfKeyIsNamed(t *testing.T) {
	(&signer{}).bubble(t, func(r *rig) {
		t := r.t
		if _, err := r.Mount(t.Context(), podWith("u1", projected("id", certificateOf("DSA")))); err == nil || !strings.Contains(err.Error(), `key type "DSA" is none of`) {
			t.Error(err)
		}
	})
}
