//go:build cluster

package member

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/cluster"
)

// A node joins with a bootstrap token, gets a client certificate, renews it again and again without a restart, and serves with
// a certificate that an administrator approved.
func TestCertificates(t *testing.T) {
	n := bareNode(t)
	dir := t.TempDir()
	n.letNodesJoin()
	kubeconfig, pki := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "pki")
	n.flags = []string{
		"--bootstrap-kubeconfig=" + n.through(n.bootstrapKubeconfig(dir)), "--kubeconfig=" + kubeconfig, "--cert-dir=" + pki,
		"--config=" + n.configuration(dir, func(c map[string]any) {
			delete(c, "tlsCertFile")
			delete(c, "tlsPrivateKeyFile")
			c["rotateCertificates"], c["serverTLSBootstrap"] = true, true
		}),
	}
	check(t, n.api.CoreV1().Nodes().Delete(t.Context(), cluster.NodeName, metav1.DeleteOptions{}))
	begun := time.Now()
	n.start()
	n.readyNode() // it cannot serve yet
	t.Logf("bootstrapped and Ready after %v", time.Since(begun).Round(time.Millisecond))
	first := leaf(t, filepath.Join(pki, "kubelet-client-current.pem"))
	if first.Subject.CommonName != "system:node:"+cluster.NodeName {
		t.Errorf("the certificate is for %s", first.Subject)
	}

	n.until("a request for a serving certificate is approved, and the certificate is served", func() error {
		if err := n.approveServing(); err != nil {
			return err
		}
		_, err := os.Stat(filepath.Join(pki, "kubelet-server-current.pem"))
		return err
	})
	serving := leaf(t, filepath.Join(pki, "kubelet-server-current.pem"))
	if !slices.ContainsFunc(serving.IPAddresses, n.NodeIP().Equal) {
		t.Errorf("the serving certificate is for %v", serving.IPAddresses)
	}
	n.create(sleeper("speaks", script("echo hello; sleep 3600")))
	n.running("speaks")
	n.until("the API server takes the serving certificate", func() error {
		out, err := n.Kubectl(t.Context(), "-n", n.ns, "logs", "speaks")
		if err == nil && out != "hello\n" {
			err = fmt.Errorf("the log is %q", out)
		}
		return err
	})

	pid := n.AgentPID(n.agent)
	agent.Eventually(t, time.Until(first.NotAfter), "the client certificate is renewed", func() error {
		if last := leaf(t, filepath.Join(pki, "kubelet-client-current.pem")); last.NotAfter.Sub(first.NotAfter) < 30*time.Second {
			return fmt.Errorf("it ends at %v", last.NotAfter)
		}
		return nil
	})
	t.Logf("renewed %v before its end", time.Until(first.NotAfter).Round(time.Second))
	n.create(sleeper("later"))
	n.running("later")
	if now := n.AgentPID(n.agent); now != pid {
		t.Errorf("the agent was restarted: process %d, then %d", pid, now)
	}
	n.stop()
	check(t, errors.Join(os.Remove(filepath.Join(pki, "kubelet-client-current.pem")), os.Remove(kubeconfig)))
	n.start() // as a new node again
	n.until("there is another certificate", func() error {
		_, err := os.Stat(filepath.Join(pki, "kubelet-client-current.pem"))
		return err
	})
	n.readyNode()
}

func leaf(t testing.TB, path string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(path)
	check(t, err)
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s holds nothing in PEM form", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	check(t, err)
	return cert
}

// token is a bootstrap token.
const tokenID, tokenSecret = "abcdef", "0123456789abcdef"

// letNodesJoin makes the objects with which a cluster takes nodes in by token and renews their certificates.
func (n *node) letNodesJoin() {
	n.t.Helper()
	ctx := context.WithoutCancel(n.t.Context())
	secret := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + tokenID}, Type: v1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": tokenID, "token-secret": tokenSecret, "usage-bootstrap-authentication": "true"},
	}
	secrets, bindings := n.api.CoreV1().Secrets("kube-system"), n.api.RbacV1().ClusterRoleBindings()
	_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
	check(n.t, err)
	n.t.Cleanup(func() { check(n.t, secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{})) })
	const approve = "system:certificates.k8s.io:certificatesigningrequests:"
	for role, group := range map[string]string{
		"system:node-bootstrapper": "system:bootstrappers", approve + "nodeclient": "system:bootstrappers", approve + "selfnodeclient": "system:nodes",
	} {
		b := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "member:" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		}
		_, err := bindings.Create(ctx, b, metav1.CreateOptions{})
		check(n.t, err)
		n.t.Cleanup(func() { check(n.t, bindings.Delete(ctx, b.Name, metav1.DeleteOptions{})) })
	}
}

// bootstrapKubeconfig is the administrator's with the token in the place of their certificate.
func (n *node) bootstrapKubeconfig(dir string) string {
	n.t.Helper()
	config, err := clientcmd.LoadFromFile(n.Kubeconfig())
	check(n.t, err)
	for _, user := range config.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData, user.Token = nil, nil, tokenID+"."+tokenSecret
	}
	file := filepath.Join(dir, "bootstrap")
	check(n.t, clientcmd.WriteToFile(*config, file))
	return file
}

// configuration is the cluster's file for agents with a change.
func (n *node) configuration(dir string, change func(map[string]any)) string {
	n.t.Helper()
	data, err := os.ReadFile(n.Path("kubelet.json"))
	check(n.t, err)
	var c map[string]any
	check(n.t, json.Unmarshal(data, &c))
	change(c)
	data, err = json.Marshal(c)
	check(n.t, err)
	file := filepath.Join(dir, "kubelet.json")
	check(n.t, os.WriteFile(file, data, 0o600))
	return file
}

// approveServing approves what nobody approves by itself.
func (n *node) approveServing() error {
	requests := n.api.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.SignerName != certv1.KubeletServingSignerName || len(r.Status.Conditions) > 0 {
			continue
		}
		if !strings.HasPrefix(r.Spec.Username, "system:node:") {
			return fmt.Errorf("a serving certificate is asked for by %s", r.Spec.Username)
		}
		r.Status.Conditions = []certv1.CertificateSigningRequestCondition{{Type: certv1.CertificateApproved, Status: v1.ConditionTrue, Reason: "Test"}}
		if _, err := requests.UpdateApproval(n.t.Context(), r.Name, r, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
