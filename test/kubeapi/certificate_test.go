package kubeapi

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	theirs "k8s.io/client-go/util/certificate"

	"github.com/kubeletkit/kubeletkit/kubeapi/certificate"
)

const life = 10 * time.Hour

// signer is an API server that signs at once what is asked for.
type signer struct {
	*fake.Clientset

	ca *authority

	mu   sync.Mutex // guards the rest
	made []*certv1.CertificateSigningRequest
	at   []time.Time
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{Clientset: fake.NewClientset(), ca: newAuthority(t)}
	s.PrependReactor("create", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*certv1.CertificateSigningRequest)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.made); n > 0 { // their list asks for one by name, which the store does not know how to do
			_ = s.Tracker().Delete(certv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), "", s.made[n-1].Name)
		}
		if r.Name == "" {
			r.Name = r.GenerateName + rand.Text()
		}
		s.made, s.at = append(s.made, r.DeepCopy()), append(s.at, time.Now())
		want := parse(t, r)
		cert := s.ca.sign(t, &x509.Certificate{
			Subject: want.Subject, DNSNames: want.DNSNames, IPAddresses: want.IPAddresses, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotBefore: time.Now(), NotAfter: time.Now().Add(life),
		}, want.PublicKey, nil)
		r.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
		r.Status.Conditions = []certv1.CertificateSigningRequestCondition{{Type: certv1.CertificateApproved, Status: v1.ConditionTrue}}
		return false, nil, nil // and now into the store
	})
	return s
}

func (s *signer) CreateRequest(ctx context.Context, r *certv1.CertificateSigningRequest) (*certv1.CertificateSigningRequest, error) {
	return s.CertificatesV1().CertificateSigningRequests().Create(ctx, r, metav1.CreateOptions{})
}

func (s *signer) Request(ctx context.Context, name string) (*certv1.CertificateSigningRequest, error) {
	return s.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
}

func parse(t *testing.T, r *certv1.CertificateSigningRequest) *x509.CertificateRequest {
	t.Helper()
	block, rest := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		t.Fatalf("not a request: %s", r.Spec.Request)
	}
	want, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// manager is their Manager, as the kubelet makes it.
func manager(t *testing.T, s *signer, dir, prefix, signerName string, template *x509.CertificateRequest, uses func(any) []certv1.KeyUsage) theirs.Manager {
	t.Helper()
	files, err := theirs.NewFileStore(prefix, dir, dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := theirs.NewManager(&theirs.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return s.Clientset, nil },
		Template:    template,
		SignerName:  signerName, GetUsages: uses, CertificateStore: files,
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func subject() pkix.Name {
	return pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
}

func (s *signer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.made)
}

// until runs something until it has made so many requests.
func (s *signer) until(t *testing.T, n int, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); s.count() < n; {
		if time.Now().After(end) {
			t.Fatalf("%d requests within %v, not %d", s.count(), within, n)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

func TestRequestsAndTheirTimes(t *testing.T) {
	const rotations = 12
	handlers := utilruntime.ErrorHandlers // they sleep by a clock that the bubble has not
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	addresses := []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "fd00::1"}, {Type: v1.NodeInternalIP, Address: "10.0.0.2"}, {Type: v1.NodeHostName, Address: "n1"}, {Type: v1.NodeExternalDNS, Address: "a.example.org"},
	}
	for _, tt := range []struct {
		name, prefix, signer string
		template             *x509.CertificateRequest
		uses                 func(any) []certv1.KeyUsage
		ours                 func(dir string, s *signer) (*certificate.Manager, error)
	}{
		{
			"client", "kubelet-client", certv1.KubeAPIServerClientKubeletSignerName, &x509.CertificateRequest{Subject: subject()}, theirs.DefaultKubeletClientGetUsages,
			func(dir string, s *signer) (*certificate.Manager, error) {
				return certificate.NewClient(certificate.ClientConfig{Node: "n1", Dir: dir, Bootstrap: s})
			},
		},
		{
			"serving", "kubelet-server", certv1.KubeletServingSignerName, &x509.CertificateRequest{
				Subject: subject(), DNSNames: []string{"a.example.org", "n1"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.2"), net.ParseIP("fd00::1")},
			}, theirs.DefaultKubeletServingGetUsages,
			func(dir string, s *signer) (*certificate.Manager, error) {
				return certificate.NewServing(certificate.ServingConfig{Node: "n1", Dir: dir, Requests: s, Addresses: func() []v1.NodeAddress { return addresses }})
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			there, here := t.TempDir(), t.TempDir()
			var a, b *signer
			synctest.Test(t, func(t *testing.T) {
				a = newSigner(t)
				m := manager(t, a, there, tt.prefix, tt.signer, tt.template, tt.uses)
				m.Start()
				a.until(t, rotations, rotations*life)
				m.Stop()
				time.Sleep(life + time.Hour) // it sleeps out
			})
			synctest.Test(t, func(t *testing.T) {
				b = newSigner(t)
				m, err := tt.ours(here, b)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- m.Run(ctx) }()
				b.until(t, rotations, rotations*life)
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			same(t, a.made[0], b.made[0])
			for who, s := range map[string]*signer{"there": a, "here": b} {
				for i := 1; i < rotations; i++ {
					if lived := s.at[i].Sub(s.at[i-1]); lived < life*7/10-time.Minute || lived > life*9/10+time.Minute {
						t.Errorf("%s: renewed after %v of %v", who, lived, life)
					}
				}
			}
			if x, y := layout(t, there), layout(t, here); !reflect.DeepEqual(x, y) {
				t.Errorf("on disk there %q, here %q", x, y)
			}
		})
	}
}

// same compares requests but for their names and keys.
func same(t *testing.T, a, b *certv1.CertificateSigningRequest) {
	t.Helper()
	x, y := parse(t, a), parse(t, b)
	if !slices.Equal(a.Spec.Usages, b.Spec.Usages) || a.Spec.SignerName != b.Spec.SignerName || a.Spec.ExpirationSeconds != nil || b.Spec.ExpirationSeconds != nil {
		t.Errorf("asked there for %+v, here for %+v", a.Spec, b.Spec)
	}
	if x.Subject.String() != y.Subject.String() || !slices.Equal(x.RawSubject, y.RawSubject) || !slices.Equal(x.DNSNames, y.DNSNames) ||
		!reflect.DeepEqual(x.IPAddresses, y.IPAddresses) || len(x.EmailAddresses)+len(y.EmailAddresses)+len(x.URIs)+len(y.URIs) > 0 {
		t.Errorf("asked there for %v %v %v, here for %v %v %v", x.Subject, x.DNSNames, x.IPAddresses, y.Subject, y.DNSNames, y.IPAddresses)
	}
	if x.SignatureAlgorithm != y.SignatureAlgorithm || x.PublicKeyAlgorithm != y.PublicKeyAlgorithm {
		t.Errorf("keys and signatures: there %v %v, here %v %v", x.PublicKeyAlgorithm, x.SignatureAlgorithm, y.PublicKeyAlgorithm, y.SignatureAlgorithm)
	}
}

// layout is what a directory has: names with their digits made equal, modes, what links show to, kinds of blocks; each once.
func layout(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	digits := regexp.MustCompile(`[0-9]`)
	seen := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		line := digits.ReplaceAllString(e.Name(), "0") + " " + info.Mode().String()
		if target, err := os.Readlink(path); err == nil {
			rel, _ := filepath.Rel(dir, target)
			line += " -> " + digits.ReplaceAllString(rel, "0")
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			line += " " + block.Type
		}
		seen[line] = true
	}
	var out []string
	for line := range seen {
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// A node moves from the kubelet here and back, and there is one pair at any time.
func TestTheFilesAreReadByBoth(t *testing.T) {
	dir := t.TempDir()
	s := newSigner(t)
	files, err := theirs.NewFileStore("kubelet-client", dir, dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	pair := s.ca.make(t, &x509.Certificate{Subject: subject()})
	if _, err := files.Update(pair.PEM(), pair.keyPEM(t)); err != nil {
		t.Fatal(err)
	}
	ours := func() *certificate.Manager {
		m, err := certificate.NewClient(certificate.ClientConfig{Node: "n1", Dir: dir, Requests: s})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if !ours().Current().Leaf.Equal(pair.cert) {
		t.Error("theirs is not read here")
	}
	if current, err := filepath.EvalSymlinks(files.CurrentPath()); err != nil || os.Rename(current, current+".away") != nil {
		t.Fatal(err)
	}
	m, err := certificate.NewClient(certificate.ClientConfig{Node: "n1", Dir: dir, Bootstrap: s})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	read := func() *x509.Certificate {
		again, err := theirs.NewFileStore("kubelet-client", dir, dir, "", "")
		if err != nil {
			t.Fatal(err)
		}
		cert, err := again.Current()
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf
	}
	if !read().Equal(m.Current().Leaf) {
		t.Error("ours is not read there")
	}
	next := s.ca.make(t, &x509.Certificate{Subject: subject()})
	if _, err := files.Update(next.PEM(), next.keyPEM(t)); err != nil {
		t.Fatal(err)
	}
	if !ours().Current().Leaf.Equal(next.cert) || !read().Equal(next.cert) {
		t.Error("back there, and here again")
	}
	// Killed while the link was changed: both find the pair.
	for name, find := range map[string]func() *x509.Certificate{"here": func() *x509.Certificate { return ours().Current().Leaf }, "there": read} {
		if err := os.Rename(files.CurrentPath(), filepath.Join(dir, "kubelet-client-updated.pem")); err != nil {
			t.Fatal(err)
		}
		if !find().Equal(next.cert) {
			t.Error("not found " + name)
		}
	}
}

func TestTheKubeconfigIsTheKubelets(t *testing.T) {
	dir := t.TempDir()
	pair := filepath.Join(dir, "kubelet-client-current.pem")
	for _, to := range []certificate.Cluster{
		{Server: "https://example.org:6443", CAData: []byte("ca")}, {Server: "https://[::1]:6443", CAFile: "/etc/kubernetes/ca.crt"}, {Server: "https://1.2.3.4", Insecure: true},
	} {
		path := filepath.Join(dir, "kubeconfig")
		if err := certificate.WriteKubeconfig(path, to, dir); err != nil {
			t.Fatal(err)
		}
		got, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(dir, "theirs")
		err = clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters: map[string]*clientcmdapi.Cluster{"default-cluster": {
				Server: to.Server, InsecureSkipTLSVerify: to.Insecure, CertificateAuthority: to.CAFile, CertificateAuthorityData: to.CAData,
			}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: pair, ClientKey: pair}},
			Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"}},
			CurrentContext: "default-context",
		}, other)
		if err != nil {
			t.Fatal(err)
		}
		want, err := clientcmd.LoadFromFile(other)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*clientcmdapi.Config{got, want} { // where each was read from
			c.Clusters["default-cluster"].LocationOfOrigin, c.AuthInfos["default-auth"].LocationOfOrigin, c.Contexts["default-context"].LocationOfOrigin = "", "", ""
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("here %+v\nthere %+v", got, want)
		}
	}
}
