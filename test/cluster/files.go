package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// object is a Kubernetes object or configuration file. JSON is read wherever YAML is.
type object map[string]any

func writeObject(path string, o object) error {
	data, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(data, '\n'), 0o600)
}

// writeFile writes a file unless it has that content: kube-proxy ends when its configuration is touched.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, mode)
}

// writeFiles writes every file that the cluster's processes read.
func (c *Cluster) writeFiles() error {
	for name := range identities(c.node) {
		config, err := c.clientConfig(name)
		if err != nil {
			return err
		}
		if err := writeObject(c.kubeconfig(name), config); err != nil {
			return err
		}
	}
	for name, o := range map[string]object{
		"audit.json":      auditPolicy(),
		"kube-proxy.json": c.proxyConfig(),
		"kubelet.json":    c.kubeletConfig(),
		"objects.json":    c.objects(),
	} {
		if err := writeObject(c.path(name), o); err != nil {
			return err
		}
	}
	if err := writeFile(c.path("Corefile"), []byte(c.corefile()), 0o644); err != nil {
		return err
	}
	return c.writeHosts()
}

// clientConfig is the kubeconfig of an identity, with everything in it.
func (c *Cluster) clientConfig(name string) (object, error) {
	read := func(file string) []byte {
		data, err := os.ReadFile(c.pki(file))
		if err != nil {
			return nil
		}
		return data
	}
	ca, cert, key := read("ca.crt"), read(name+".crt"), read(name+".key")
	if ca == nil || cert == nil || key == nil {
		return nil, fmt.Errorf("make a kubeconfig for %s: certificate files are missing in %s", name, c.pki(""))
	}
	return object{ // bytes become base64, as wanted
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": "bed",
		"clusters":        []object{{"name": "bed", "cluster": object{"server": c.apiURL(), "certificate-authority-data": ca}}},
		"users":           []object{{"name": name, "user": object{"client-certificate-data": cert, "client-key-data": key}}},
		"contexts":        []object{{"name": "bed", "context": object{"cluster": "bed", "user": name}}},
	}, nil
}

// auditPolicy records the requests of the node, without their contents, and nobody else's.
func auditPolicy() object {
	return object{
		"apiVersion": "audit.k8s.io/v1",
		"kind":       "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules": []object{
			{"level": "Metadata", "userGroups": []string{"system:nodes"}, "omitManagedFields": true},
			{"level": "None"},
		},
	}
}

func (c *Cluster) proxyConfig() object {
	return object{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"mode":               "nftables",
		"clusterCIDR":        c.subnet.String(),
		"hostnameOverride":   nodeName,
		"clientConnection":   object{"kubeconfig": c.kubeconfig("proxy")},
		"conntrack":          object{"maxPerCore": 0}, // the machine's limit stays
		"healthzBindAddress": "127.0.0.1:10256",
		"metricsBindAddress": "127.0.0.1:10249",
	}
}

func (c *Cluster) corefile() string {
	return strings.NewReplacer(
		"PORT", dnsPort, "ADDRESS", c.node.String(), "DOMAIN", clusterDomain, "KUBECONFIG", c.kubeconfig("dns"),
	).Replace(`.:PORT {
  bind ADDRESS
  errors
  kubernetes DOMAIN in-addr.arpa ip6.arpa {
    kubeconfig KUBECONFIG
    pods insecure
    fallthrough in-addr.arpa ip6.arpa
  }
  cache 5
}
`)
}

// writeHosts leads containerd to the registries on loopback: what the specs want from registry.k8s.io comes
// from the first.
func (c *Cluster) writeHosts() error {
	for host, port := range map[string]string{
		"registry.k8s.io":               registryPort,
		"127.0.0.1:" + registryPort:     registryPort,
		"127.0.0.1:" + authRegistryPort: authRegistryPort,
	} {
		url := "http://127.0.0.1:" + port
		text := fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", url, url)
		if err := writeFile(c.path("registry", host, "hosts.toml"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
