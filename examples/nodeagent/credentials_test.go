package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/examples/nodeagent/config"
	"github.com/kubeletkit/kubeletkit/kubeapi"
	"github.com/kubeletkit/kubeletkit/kubeapi/certificate"
	"github.com/kubeletkit/kubeletkit/observe"
)

// joining are the options of a node with an API server that nobody reaches; how says which of its two kubeconfigs there are.
func joining(t *testing.T, how ...string) *options {
	t.Helper()
	dir := t.TempDir()
	o := &options{nodeName: "n1", flags: new(config.Overrides), kubelet: &v1beta1.KubeletConfiguration{RotateCertificates: true}}
	o.flags.Kubeconfig, o.flags.BootstrapKubeconfig, o.flags.CertDir = filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "bootstrap"), filepath.Join(dir, "pki")
	write := func(path string, user *clientcmdapi.AuthInfo) {
		c := clientcmdapi.Config{
			Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:1", ProxyURL: "http://proxy:3128", TLSServerName: "api"}},
			AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user}, Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
		}
		if err := clientcmd.WriteToFile(c, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range how {
		switch h {
		case "joined":
			cert, key, err := certificate.SelfSigned(dir, []string{"system:node:n1"})
			if err != nil {
				t.Fatal(err)
			}
			write(o.flags.Kubeconfig, &clientcmdapi.AuthInfo{ClientCertificate: cert, ClientKey: key})
		case "bootstrap":
			write(o.flags.BootstrapKubeconfig, &clientcmdapi.AuthInfo{Token: "abcdef.0123456789abcdef"})
		case "broken bootstrap":
			if err := os.WriteFile(o.flags.BootstrapKubeconfig, []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return o
}

// credentialsAtOnce are what a node begins with that cannot reach its API server.
func credentialsAtOnce(t *testing.T, o *options) (credentials, error) {
	t.Helper()
	if err := obtain(t.Context(), o, observe.To{}); err != nil {
		return credentials{}, err
	}
	return credentialsOf(o, late(func() certificate.Requester { return nil }), observe.To{})
}

// kubernetes/kubernetes#68686: pods from files, such as the API server, waited for the certificate that it was to give.
func TestNobodyWaitsForAFirstCertificate(t *testing.T) {
	o := joining(t, "bootstrap")
	for range 2 { // the second time it finds a kubeconfig that names a certificate which is not there
		c, err := credentialsAtOnce(t, o)
		if err != nil {
			t.Fatal(err)
		}
		if c.rest.Host != "https://127.0.0.1:1" || c.rest.BearerToken != "" || c.renewed == nil || c.renewed.Current() != nil {
			t.Errorf("it goes to %s with %q, and has %+v", c.rest.Host, c.rest.BearerToken, c.renewed)
		}
		text, err := os.ReadFile(o.flags.Kubeconfig)
		for _, want := range []string{"https://127.0.0.1:1", `"api"`, `"http://proxy:3128"`, filepath.Join(o.flags.CertDir, "kubelet-client-current.pem")} {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s is missing in the kubeconfig: %s, %v", want, text, err)
			}
		}
	}
	o = joining(t, "bootstrap")
	o.kubelet.RotateCertificates = false // there would be nobody to ask for it later
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("enough"))
	if err := obtain(ctx, o, observe.To{}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("without renewal: %v", err)
	}
}

// kubernetes/kubeadm#2054: what a node joined with is removed once it has joined.
func TestANodeThatHasJoinedNeedsNoBootstrapKubeconfig(t *testing.T) {
	for _, how := range []string{"none", "bootstrap", "broken bootstrap"} {
		for _, renew := range []bool{true, false} {
			o := joining(t, "joined", how)
			o.kubelet.RotateCertificates = renew
			c, err := credentialsAtOnce(t, o)
			if err != nil {
				t.Errorf("%s: %v", how, err)
				continue
			}
			if certified := c.renewed != nil || c.rest.CertFile != ""; !certified || (c.renewed != nil) != (renew || how == "bootstrap") {
				t.Errorf("%s, renewed %v: %+v", how, renew, c)
			}
		}
	}
	for _, how := range []string{"none", "broken bootstrap"} {
		o := joining(t, how)
		if _, err := credentialsAtOnce(t, o); err == nil || !strings.Contains(err.Error(), o.flags.Kubeconfig) || !strings.Contains(err.Error(), o.flags.BootstrapKubeconfig) {
			t.Errorf("neither is there, or good (%s): %v", how, err)
		}
	}
}

func TestWhatAKubeconfigSaysOfTheCluster(t *testing.T) {
	o := joining(t, "bootstrap")
	c, err := kubeapi.LoadREST(o.flags.BootstrapKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	const want = "{https://127.0.0.1:1  [] false api http://proxy:3128}"
	if got := fmt.Sprint(clusterOf(c)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if c.Proxy = nil; clusterOf(c).ProxyURL != "" {
		t.Error("a proxy that nobody named")
	}
}
