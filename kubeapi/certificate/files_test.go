package certificate

import (
	"crypto/tls"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/reread"
)

func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	crt, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		oldCert, oldKey := ca.pair(t, clientRequest("old"))
		newCert, newKey := ca.pair(t, clientRequest("new"))
		write(t, crt, oldCert)
		write(t, key, oldKey)
		f, err := NewFiles(FilesConfig{CertFile: crt, KeyFile: key})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			name      string
			cert, key []byte
			now       string
		}{
			{"as it was", oldCert, oldKey, "old"},
			{"the certificate came before its key", newCert, oldKey, "old"},
			{"both are there", newCert, newKey, "new"},
			{"half written", newCert[:100], newKey, "new"},
			{"empty", nil, nil, "new"},
			{"back", oldCert, oldKey, "old"},
		} {
			write(t, crt, step.cert)
			write(t, key, step.key)
			time.Sleep(reread.Every)
			if c, err := f.GetCertificate(nil); err != nil || c.Leaf.Subject.CommonName != "system:node:"+step.now {
				t.Errorf("%s: %v, %v", step.name, c.Leaf.Subject, err)
			}
		}
		for _, path := range []string{crt, key} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(reread.Every)
			if f.Current() == nil {
				t.Error("removed: the last good pair is forgotten")
			}
		}
	})
}

func TestFilesThatAreNoGoodAtTheStart(t *testing.T) {
	dir := t.TempDir()
	cert, key := newAuthority(t).pair(t, clientRequest("n1"))
	_, other := newAuthority(t).pair(t, clientRequest("n1"))
	good := filepath.Join(dir, "tls.crt")
	write(t, good, cert)
	write(t, filepath.Join(dir, "other.key"), other)
	write(t, filepath.Join(dir, "both.pem"), append(cert, key...))
	for name, cfg := range map[string]FilesConfig{
		"nothing": {}, "no key": {CertFile: good}, "no certificate": {KeyFile: good},
		"not there":    {CertFile: filepath.Join(dir, "x"), KeyFile: good},
		"another's":    {CertFile: good, KeyFile: filepath.Join(dir, "other.key")},
		"not even one": {CertFile: good, KeyFile: good},
	} {
		if f, err := NewFiles(cfg); err == nil || f != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f, err := NewFiles(FilesConfig{CertFile: filepath.Join(dir, "both.pem"), KeyFile: filepath.Join(dir, "both.pem")}); err != nil || f.Current() == nil {
		t.Errorf("both in one file: %v", err)
	}
}

func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	synctest.Test(t, func(t *testing.T) {
		load := func() *tls.Certificate {
			crt, key, err := SelfSigned(dir, []string{"n1", "10.0.0.1"})
			if err != nil || crt != filepath.Join(dir, "kubelet.crt") || key != filepath.Join(dir, "kubelet.key") {
				t.Fatal(crt, key, err)
			}
			pair, err := tls.LoadX509KeyPair(crt, key)
			if err != nil {
				t.Fatal(err)
			}
			return &pair
		}
		first := load()
		if first.Leaf.VerifyHostname("n1") != nil || first.Leaf.VerifyHostname("10.0.0.1") != nil {
			t.Error(first.Leaf.DNSNames, first.Leaf.IPAddresses)
		}
		if info, err := os.Stat(filepath.Join(dir, "kubelet.key")); err != nil || info.Mode() != 0o600 {
			t.Error(info.Mode(), err)
		}
		if !load().Leaf.Equal(first.Leaf) {
			t.Error("made anew although it was good")
		}
		time.Sleep(367 * 24 * time.Hour)
		if load().Leaf.Equal(first.Leaf) {
			t.Error("used although it has expired")
		}
		write(t, filepath.Join(dir, "kubelet.crt"), []byte("mine"))
		load()
		if text, err := os.ReadFile(filepath.Join(dir, "kubelet.crt.old")); err != nil || string(text) != "mine" {
			t.Errorf("what was there: %q, %v", text, err)
		}
	})
	if _, _, err := SelfSigned(filepath.Join(dir, "other"), nil); err == nil {
		t.Error("without a host")
	}
}

func TestWriteKubeconfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "etc", "kubelet.conf")
	to := Cluster{Server: "https://example.org:6443", CAData: []byte("ca"), ServerName: `we"ird: name`}
	for range 2 {
		if err := WriteKubeconfig(path, to, filepath.Join(dir, "pki")); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"v1","clusters":[{"cluster":{"certificate-authority-data":"Y2E=","server":"https://example.org:6443","tls-server-name":"we\"ird: name"},"name":"default-cluster"}],` +
		`"contexts":[{"context":{"cluster":"default-cluster","namespace":"default","user":"default-auth"},"name":"default-context"}],"current-context":"default-context","kind":"Config",` +
		`"users":[{"name":"default-auth","user":{"client-certificate":"DIR/pki/kubelet-client-current.pem","client-key":"DIR/pki/kubelet-client-current.pem"}}]}`
	if got := strings.ReplaceAll(string(asJSON), dir, "DIR"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if _, err := os.Stat(path + ".old"); !os.IsNotExist(err) {
		t.Errorf("the same is kept twice: %v", err)
	}

	to = Cluster{Server: "https://other", CAFile: "/etc/ca.crt", CAData: []byte("not this"), Insecure: true, ProxyURL: "http://proxy"}
	if err := WriteKubeconfig(path, to, dir); err != nil {
		t.Fatal(err)
	}
	if old, err := os.ReadFile(path + ".old"); err != nil || string(old) != string(text) {
		t.Errorf("what was there: %q, %v", old, err)
	}
	text, _ = os.ReadFile(path)
	var config struct {
		Clusters []struct{ Cluster map[string]any }
	}
	asJSON, _ = yaml.YAMLToJSON(text)
	if err := json.Unmarshal(asJSON, &config); err != nil {
		t.Fatal(err)
	}
	if c := config.Clusters[0].Cluster; c["certificate-authority"] != "/etc/ca.crt" || c["certificate-authority-data"] != nil || c["insecure-skip-tls-verify"] != true || c["proxy-url"] != "http://proxy" {
		t.Errorf("%v", c)
	}
	if err := WriteKubeconfig(path, Cluster{}, dir); err == nil {
		t.Error("without a server")
	}
}

func TestGood(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.pair(t, clientRequest("n1"))
	soon := time.Now().Add(200 * time.Hour)
	for _, tt := range []struct {
		name string
		text []byte
		now  time.Time
		good bool
	}{
		{"good", cert, time.Now(), true},
		{"with a key", append(append([]byte{}, key...), cert...), time.Now(), true},
		{"expired", cert, soon, false},
		{"nothing", nil, time.Now(), false},
		{"a key alone", key, time.Now(), false},
		{"garbage", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), time.Now(), false},
	} {
		if err := Good(tt.text, tt.now); (err == nil) != tt.good {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
