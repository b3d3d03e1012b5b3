package certificate

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Cluster is the part of a bootstrap kubeconfig that goes on into the node's own.
type Cluster struct {
	Server     string // URL; required
	CAFile     string // goes first
	CAData     []byte // PEM
	Insecure   bool   // the server's certificate is not checked
	ServerName string // that the server's certificate is checked for; empty: the host in Server
	ProxyURL   string // empty: as the environment says
}

// WriteKubeconfig writes the kubeconfig of a node that shows the client certificate kept in dir: a kubelet and kubectl can
// use it as well. It has mode 0600 and is replaced in one moment; what was there before is kept beside it, with .old
// at the end, when it says something else.
func WriteKubeconfig(path string, to Cluster, dir string) error {
	text, err := kubeconfig(to, dir)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if was, err := os.ReadFile(path); err == nil {
		if string(was) == text {
			return nil
		}
		if err := replaceFile(path+".old", was, 0o600); err != nil {
			return fmt.Errorf("kubeconfig %s: keep the one before: %w", path, err)
		}
	}
	if err := replaceFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}

// kubeconfig is its text, with the names that the kubelet gives to its parts. Strings are in JSON, which is YAML too.
func kubeconfig(to Cluster, dir string) (string, error) {
	if to.Server == "" {
		return "", errors.New("no server given")
	}
	pair, err := filepath.Abs((&store{dir: dir, prefix: "kubelet-client"}).current())
	if err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(text string, value any) {
		quoted, _ := json.Marshal(value) // strings and bools
		_, _ = fmt.Fprintf(&b, text+": %s\n", quoted)
	}
	b.WriteString("apiVersion: v1\nkind: Config\nclusters:\n- name: default-cluster\n  cluster:\n")
	line("    server", to.Server)
	switch {
	case to.CAFile != "":
		line("    certificate-authority", to.CAFile)
	case len(to.CAData) > 0:
		line("    certificate-authority-data", base64.StdEncoding.EncodeToString(to.CAData))
	}
	if to.Insecure {
		line("    insecure-skip-tls-verify", true)
	}
	if to.ServerName != "" {
		line("    tls-server-name", to.ServerName)
	}
	if to.ProxyURL != "" {
		line("    proxy-url", to.ProxyURL)
	}
	b.WriteString("users:\n- name: default-auth\n  user:\n")
	line("    client-certificate", pair)
	line("    client-key", pair)
	b.WriteString("contexts:\n- name: default-context\n  context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\ncurrent-context: default-context\n")
	return b.String(), nil
}

// Good says what is wrong with the certificates of a kubeconfig, PEM: there are none, one does not read or has expired.
// A kubeconfig with such is not worth using when there is a bootstrap kubeconfig.
func Good(certs []byte, now time.Time) error {
	some := false
	for {
		var block *pem.Block
		block, certs = pem.Decode(certs)
		switch {
		case block == nil && !some:
			return errors.New("no PEM block CERTIFICATE in it")
		case block == nil:
			return nil
		case block.Type != "CERTIFICATE" || len(block.Headers) > 0:
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return err
		case now.After(cert.NotAfter):
			return fmt.Errorf("certificate of %q expired on %s", cert.Subject.CommonName, cert.NotAfter.UTC().Format(time.RFC3339))
		}
		some = true
	}
}
