package kubeapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const goodConfig = `apiVersion: v1
kind: Config
clusters: [{name: far, cluster: {server: "https://10.0.0.1:6443", certificate-authority: pki/ca.crt}}]
users: [{name: me, user: {client-certificate: pki/client.pem, client-key: pki/client.pem}}]
contexts: [{name: work, context: {cluster: far, user: me}}, {name: other, context: {cluster: far, user: me}}]
current-context: work
`

// keyPair is a certificate signed by its own key, and that key.
func keyPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:n"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pemBlock("CERTIFICATE", der), pemBlock("EC PRIVATE KEY", keyDER)
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// configDir is a directory with a kubeconfig and what it names.
func configDir(t *testing.T, config string) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	cert, key := keyPair(t)
	_, otherKey := keyPair(t)
	path = filepath.Join(dir, "kubeconfig")
	for name, text := range map[string]string{
		"kubeconfig": config, "pki/ca.crt": string(cert), "pki/client.pem": string(cert) + string(key), "pki/other.key": string(otherKey),
		"pki/junk": "junk", "pki/empty": "", "pki/token": "abc\n", "pki/blank": "\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, path
}

func TestRelativePathsStartAtTheKubeconfig(t *testing.T) {
	dir, path := configDir(t, goodConfig)
	t.Chdir(t.TempDir())
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(wd, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, relative} {
		rc, err := LoadREST(p)
		if err != nil {
			t.Fatal(err)
		}
		if rc.Host != "https://10.0.0.1:6443" || rc.CertFile != filepath.Join(dir, "pki/client.pem") || rc.KeyFile != rc.CertFile || rc.CAFile != filepath.Join(dir, "pki/ca.crt") {
			t.Errorf("%s: host %s, certificate %s, key %s, CA %s", p, rc.Host, rc.CertFile, rc.KeyFile, rc.CAFile)
		}
		if _, err := New(Config{REST: rc, Node: "n"}); err != nil {
			t.Error(err)
		}
	}
}

func TestOtherWaysToSayWhoWeAre(t *testing.T) {
	cert, key := keyPair(t)
	b64 := base64.StdEncoding.EncodeToString
	for name, user := range map[string]string{
		"a certificate in place":  "{client-certificate-data: " + b64(cert) + ", client-key-data: " + b64(key) + "}",
		"a token":                 "{token: abc}",
		"a token file":            "{tokenFile: pki/token}",
		"a plugin":                "{exec: {apiVersion: client.authentication.k8s.io/v1, command: give-token, interactiveMode: Never}}",
		"data goes before a file": "{client-certificate: pki/client.pem, client-key-data: " + b64([]byte("x")) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			_, path := configDir(t, strings.Replace(goodConfig, "{client-certificate: pki/client.pem, client-key: pki/client.pem}", user, 1))
			rc, err := LoadREST(path)
			if name == "data goes before a file" {
				if err == nil || !strings.Contains(err.Error(), "client-key-data is no usable pair") {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if rc.CertFile != "" {
				t.Errorf("a certificate file %s", rc.CertFile)
			}
		})
	}
}

func TestPlainHTTPNeedsNoCredentials(t *testing.T) {
	_, path := configDir(t, `{clusters: [{name: c, cluster: {server: "http://127.0.0.1:8080"}}], users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}`)
	if rc, err := LoadREST(path); err != nil || rc.Host != "http://127.0.0.1:8080" {
		t.Error(rc, err)
	}
}

func TestWhatIsWrongWithAKubeconfig(t *testing.T) {
	const files = "{client-certificate: pki/client.pem, client-key: pki/client.pem}"
	for _, c := range []struct {
		name, old, new string
		want           []string
		missing        bool
	}{
		{"no current context", "current-context: work", "", []string{"no current-context is set", "other, work"}, false},
		{"an unknown current context", "current-context: work", "current-context: home", []string{`current-context is "home"`, "other, work"}, false},
		{"another kind of file", goodConfig, "kind: Pod\napiVersion: v1\n", []string{"Pod"}, false},
		{"an empty file", goodConfig, "", []string{"is it a kubeconfig"}, false},
		{"not YAML", goodConfig, "{", []string{"yaml"}, false},
		{"no such cluster", "cluster: far, user: me", "cluster: near, user: me", []string{`context "work"`, `no cluster "near"`, "it has: far"}, false},
		{"no such user", "cluster: far, user: me", "cluster: far, user: you", []string{`context "work"`, `no user "you"`, "it has: me"}, false},
		{"no server", `server: "https://10.0.0.1:6443", `, "", []string{`context "work", cluster "far"`, "no server", "like https://"}, false},
		{"a server that is no URL", "https://10.0.0.1:6443", "10.0.0.1:6443", []string{`server "10.0.0.1:6443" is no URL`}, false},
		{"a CA file that is missing", "pki/ca.crt", "pki/none.crt", []string{"certificate-authority", "pki/none.crt", "no such file"}, true},
		{"a CA file that is a directory", "pki/ca.crt", "pki", []string{"certificate-authority", "is not readable"}, false},
		{"a CA file with junk", "pki/ca.crt", "pki/junk", []string{"no certificate in PEM form", "the cluster's CA"}, false},
		{"an empty CA file", "pki/ca.crt", "pki/empty", []string{"pki/empty is empty"}, false},
		{"a CA that is not looked at", "pki/ca.crt", "pki/ca.crt, insecure-skip-tls-verify: true", []string{"remove insecure-skip-tls-verify"}, false},
		{"a client certificate that is missing", "client-certificate: pki/client.pem", "client-certificate: pki/none.pem", []string{`context "work", user "me"`, "client-certificate", "pki/none.pem"}, true},
		{"no key", ", client-key: pki/client.pem", "", []string{"without client-key"}, false},
		{"no certificate", "client-certificate: pki/client.pem, ", "", []string{"without client-certificate"}, false},
		{"another's key", "client-key: pki/client.pem", "client-key: pki/other.key", []string{"no usable pair", "private key does not match"}, false},
		{"both token and certificate", "client-key: pki/client.pem", "client-key: pki/client.pem, token: abc", []string{"both client-certificate", "and token are set", "remove one"}, false},
		{"no credentials", files, "{}", []string{"no credentials", "client-certificate and client-key, or a token"}, false},
		{"a token file that is missing", files, "{tokenFile: pki/none}", []string{"tokenFile", "pki/none"}, true},
		{"a token file that is blank", files, "{tokenFile: pki/blank}", []string{"pki/blank is empty; put a token there"}, false},
		{"a plugin without a command", files, "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}", []string{`context "work"`, "command must be specified"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, path := configDir(t, strings.Replace(goodConfig, c.old, c.new, 1))
			_, err := LoadREST(path)
			if err == nil {
				t.Fatal("it is taken")
			}
			for _, want := range append(c.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %s", err, want)
				}
			}
			if errors.Is(err, fs.ErrNotExist) != c.missing {
				t.Errorf("%v: is fs.ErrNotExist %t", err, !c.missing)
			}
		})
	}
}

func TestAKubeconfigThatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	_, err := LoadREST(path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}
