package kubeapi

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// LoadREST reads where the API server is, and who we are there, from the current context of a kubeconfig file. Relative paths in
// it start from where the file is; the result has absolute ones. TLSClientConfig.CertFile of the result is the file with the
// client certificate, empty when there is none or it stands in the kubeconfig itself: package certificate can take it over.
//
// What could not work is an error that names file, context and remedy. A file that is missing, the kubeconfig or one it names,
// is fs.ErrNotExist. Nothing is asked of a server.
func LoadREST(path string) (*rest.Config, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	all, err := clientcmd.LoadFromFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("kubeconfig %s: there is no such file; give the path of one, or make one with a bootstrap token: %w", path, fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := clientcmd.ResolveLocalPaths(all); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := pick(all); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	rc, err := clientcmd.NewNonInteractiveClientConfig(*all, all.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s, context %q: %w", path, all.CurrentContext, err)
	}
	return rc, nil
}

// pick checks the current context and what it names.
func pick(all *clientcmdapi.Config) error {
	name := all.CurrentContext
	if len(all.Contexts) == 0 {
		return errors.New("it has no contexts; is it a kubeconfig at all?")
	}
	if name == "" {
		return fmt.Errorf("no current-context is set; set it to one of: %s", names(all.Contexts))
	}
	c := all.Contexts[name]
	if c == nil {
		return fmt.Errorf("current-context is %q, which is none of its contexts; set it to one of: %s", name, names(all.Contexts))
	}
	cluster, user := all.Clusters[c.Cluster], all.AuthInfos[c.AuthInfo]
	switch {
	case cluster == nil:
		return fmt.Errorf("context %q: there is no cluster %q in the file; it has: %s", name, c.Cluster, names(all.Clusters))
	case user == nil:
		return fmt.Errorf("context %q: there is no user %q in the file; it has: %s", name, c.AuthInfo, names(all.AuthInfos))
	}
	server, err := checkCluster(cluster)
	if err != nil {
		return fmt.Errorf("context %q, cluster %q: %w", name, c.Cluster, err)
	}
	if server.Scheme == "http" {
		return nil // credentials are not sent
	}
	if err := checkUser(user); err != nil {
		return fmt.Errorf("context %q, user %q: %w", name, c.AuthInfo, err)
	}
	return nil
}

func names[T any](m map[string]T) string {
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(m)), ", "), "none")
}

func checkCluster(c *clientcmdapi.Cluster) (*url.URL, error) {
	if c.Server == "" {
		return nil, errors.New("it has no server; set it to the API server's URL, like https://10.0.0.1:6443")
	}
	server, err := url.Parse(c.Server)
	if err != nil || server.Host == "" || server.Scheme != "https" && server.Scheme != "http" {
		return nil, fmt.Errorf("server %q is no URL; write it like https://10.0.0.1:6443", c.Server)
	}
	text, from, err := either("certificate-authority", c.CertificateAuthority, c.CertificateAuthorityData)
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0:
		return server, nil
	case c.InsecureSkipTLSVerify:
		return nil, fmt.Errorf("both %s and insecure-skip-tls-verify are set; remove insecure-skip-tls-verify", from)
	case !x509.NewCertPool().AppendCertsFromPEM(text):
		return nil, fmt.Errorf("%s has no certificate in PEM form; put the cluster's CA certificate there", from)
	}
	return server, nil
}

func checkUser(u *clientcmdapi.AuthInfo) error {
	cert, certFrom, err := either("client-certificate", u.ClientCertificate, u.ClientCertificateData)
	if err != nil {
		return err
	}
	key, keyFrom, err := either("client-key", u.ClientKey, u.ClientKeyData)
	if err != nil {
		return err
	}
	token, tokenFrom := []byte(u.Token), "token"
	if u.Token == "" {
		if token, tokenFrom, err = either("tokenFile", u.TokenFile, nil); err != nil {
			return err
		}
	}
	switch hasToken := tokenFrom != "" && (u.Token != "" || u.TokenFile != ""); {
	case certFrom != "" && hasToken:
		return fmt.Errorf("both %s and %s are set, which could be two identities; remove one", certFrom, tokenFrom)
	case certFrom != "" && keyFrom == "":
		return fmt.Errorf("%s is set without client-key; set that, too (it may be the same file)", certFrom)
	case certFrom == "" && keyFrom != "":
		return fmt.Errorf("%s is set without client-certificate; set that, too (it may be the same file)", keyFrom)
	case certFrom != "":
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			return fmt.Errorf("%s with %s is no usable pair; bring a certificate and its key in PEM form: %w", certFrom, keyFrom, err)
		}
	case hasToken && len(strings.TrimSpace(string(token))) == 0:
		return fmt.Errorf("%s is empty; put a token there", tokenFrom)
	case !hasToken && u.Exec == nil && u.AuthProvider == nil && u.Username == "":
		return errors.New("it has no credentials; set client-certificate and client-key, or a token")
	}
	return nil
}

// either reads what may be given as a file or in place, which goes first; from says where it is, empty for nowhere.
func either(field, file string, data []byte) (text []byte, from string, err error) {
	switch {
	case len(data) > 0:
		return data, field + "-data", nil
	case file == "":
		return nil, "", nil
	}
	from = field + " " + file
	text, err = os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, from, fmt.Errorf("%s: there is no such file; put it there or correct the path: %w", from, fs.ErrNotExist)
	case err != nil:
		return nil, from, fmt.Errorf("%s is not readable: %w", from, err)
	case len(text) == 0:
		return nil, from, fmt.Errorf("%s is empty", from)
	}
	return text, from, nil
}
