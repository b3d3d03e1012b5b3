package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/test/bed"
)

// Names, addresses and ports of the cluster.
const (
	nodeName      = "node1"
	clusterDomain = "cluster.local"
	serviceRange  = "10.96.0.0/16"
	apiServiceIP  = "10.96.0.1"
	dnsServiceIP  = "10.96.0.10"

	apiPort          = "6443"
	etcdPort         = "2379"
	etcdPeerPort     = "2380"
	dnsPortNumber    = 5353
	dnsPort          = "5353"
	registryPort     = "5000"
	authRegistryPort = "5001"
)

func binary(name string) string { return filepath.Join(bed.BinDir(), name) }

// controlPlane lists the services that must run before the node agent, in the order of their start.
func (c *Cluster) controlPlane() []service {
	return []service{c.etcd(), c.apiserver(), c.controllerManager(), c.scheduler()}
}

func (c *Cluster) etcd() service {
	client, peer := "http://127.0.0.1:"+etcdPort, "http://127.0.0.1:"+etcdPeerPort
	return service{
		name: "etcd",
		file: binary("etcd"),
		args: []string{
			"--name=" + nodeName,
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + nodeName + "=" + peer,
			"--unsafe-no-fsync", // a cluster of a test need not outlive the machine
		},
		ready: func(ctx context.Context) error { return getOK(ctx, http.DefaultClient, client+"/health") },
	}
}

func (c *Cluster) apiserver() service {
	node := c.node.String()
	return service{
		name: "kube-apiserver",
		file: binary("kube-apiserver"),
		args: []string{
			"--etcd-servers=http://127.0.0.1:" + etcdPort,
			"--bind-address=" + node,
			"--advertise-address=" + node, // where pods reach it through its Service
			"--secure-port=" + apiPort,
			"--client-ca-file=" + c.pki("ca.crt"),
			"--tls-cert-file=" + c.pki("apiserver.crt"),
			"--tls-private-key-file=" + c.pki("apiserver.key"),
			"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
			"--service-account-key-file=" + c.pki("sa.pub"),
			"--service-account-signing-key-file=" + c.pki("sa.key"),
			"--service-cluster-ip-range=" + serviceRange,
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--enable-bootstrap-token-auth",
			"--allow-privileged=true",
			"--audit-policy-file=" + c.path("audit.json"),
			"--audit-log-path=" + c.path("log", "audit.log"),
			"--audit-log-maxsize=100",
			"--audit-log-maxbackup=2",
			"--kubelet-client-certificate=" + c.pki("apiserver-kubelet-client.crt"),
			"--kubelet-client-key=" + c.pki("apiserver-kubelet-client.key"),
			"--kubelet-certificate-authority=" + c.pki("ca.crt"),
			"--kubelet-preferred-address-types=InternalIP",
			"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"),
			"--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
		},
		ready: c.apiReady,
	}
}

func (c *Cluster) controllerManager() service {
	return service{
		name: "kube-controller-manager",
		file: binary("kube-controller-manager"),
		args: append(c.clientFlags("controller-manager"),
			"--bind-address=127.0.0.1",
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--service-account-private-key-file="+c.pki("sa.key"),
			"--root-ca-file="+c.pki("ca.crt"),
			"--cluster-signing-cert-file="+c.pki("ca.crt"),
			"--cluster-signing-key-file="+c.pki("ca.key"),
			"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"),
			"--controllers=*,bootstrapsigner,tokencleaner",
			"--cert-dir="+c.path("controller-manager"),
		),
	}
}

func (c *Cluster) scheduler() service {
	return service{
		name: "kube-scheduler",
		file: binary("kube-scheduler"),
		args: append(c.clientFlags("scheduler"),
			"--bind-address=127.0.0.1", "--leader-elect=false", "--cert-dir="+c.path("scheduler")),
	}
}

// clientFlags make a component use its identity for its own requests and for asking about those of others.
func (c *Cluster) clientFlags(identity string) []string {
	file := c.kubeconfig(identity)
	return []string{"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file}
}

func (c *Cluster) proxy() service {
	return service{
		name:  "kube-proxy",
		file:  binary("kube-proxy"),
		args:  []string{"--config=" + c.path("kube-proxy.json")},
		ready: func(ctx context.Context) error { return getOK(ctx, http.DefaultClient, "http://127.0.0.1:10256/livez") },
	}
}

func (c *Cluster) dns() service {
	return service{
		name: "coredns",
		file: binary("coredns"),
		args: []string{"-conf", c.path("Corefile")},
		ready: func(ctx context.Context) error {
			r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(c.node.String(), dnsPort))
			}}
			_, err := r.LookupHost(ctx, "kubernetes.default.svc."+clusterDomain)
			return err
		},
	}
}

// registries are two servers of the same images, the second of which wants a password.
func (c *Cluster) registries() []service {
	serve := func(name, port string, more ...string) service {
		address := net.JoinHostPort("127.0.0.1", port)
		return service{
			name: name,
			file: c.self,
			args: append([]string{"registry", "-dir", c.path("images"), "-listen", address}, more...),
			ready: func(ctx context.Context) error {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
				if err != nil {
					return err
				}
				return conn.Close()
			},
		}
	}
	return []service{
		serve("registry", registryPort),
		serve("registry-auth", authRegistryPort, "-login", RegistryLogin),
	}
}

// RegistryLogin is the "user:password" of the registry at 127.0.0.1:5001.
const RegistryLogin = "puller:secret"

// apiReady asks the API server as its administrator.
func (c *Cluster) apiReady(ctx context.Context) error {
	client, err := c.adminClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return getOK(ctx, client, c.apiURL()+"/readyz")
}

func (c *Cluster) apiURL() string { return "https://" + net.JoinHostPort(c.node.String(), apiPort) }

func (c *Cluster) adminClient() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(c.pki("admin.crt"), c.pki("admin.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the cluster's authority cannot be read")
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 5 * time.Second}, nil
}

func getOK(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // what can be read of it
		return fmt.Errorf("%s: %s: %s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
