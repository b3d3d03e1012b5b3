package cluster

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func testCluster(t *testing.T) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "kk") //nolint:usetesting // the directory of a test is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c.subnet, c.node = netip.MustParsePrefix("10.192.0.0/22"), net.IPv4(10, 192, 0, 1)
	return c
}

func TestFilesAreComplete(t *testing.T) {
	c := testCluster(t)
	if err := writePKI(c.path("pki"), c.node, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.writeFiles(); err != nil {
		t.Fatal(err)
	}
	for file, parts := range map[string][]string{
		"admin.kubeconfig":                    {`"server": "https://10.192.0.1:6443"`, `"client-key-data": "LS0t`},
		"audit.json":                          {`"system:nodes"`, `"level": "None"`},
		"kube-proxy.json":                     {`"mode": "nftables"`, `"maxPerCore": 0`},
		"kubelet.json":                        {`"address": "10.192.0.1"`, `"mode": "Webhook"`, `"failCgroupV1": false`, `"resolvConf": ""`},
		"objects.json":                        {`"clusterIP": "10.96.0.10"`, `"10.192.0.1"`},
		"Corefile":                            {".:5353 {", "bind 10.192.0.1", "kubernetes cluster.local"},
		"registry/registry.k8s.io/hosts.toml": {`server = "http://127.0.0.1:5000"`},
		"registry/127.0.0.1:5001/hosts.toml":  {`[host."http://127.0.0.1:5001"]`},
	} {
		data, err := os.ReadFile(c.path(file))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, p := range parts {
			if !strings.Contains(string(data), p) {
				t.Errorf("%s has no %s:\n%s", file, p, data)
			}
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(data) {
			t.Errorf("%s is no JSON", file)
		}
	}
}

// A second start must not touch what a process watches.
func TestFilesThatAreRightAreNotWritten(t *testing.T) {
	c := testCluster(t)
	if err := writePKI(c.path("pki"), c.node, time.Now()); err != nil {
		t.Fatal(err)
	}
	var written [2]time.Time
	for i := range written {
		if err := c.writeFiles(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(c.path("kube-proxy.json"))
		if err != nil {
			t.Fatal(err)
		}
		written[i] = info.ModTime()
		old := time.Now().Add(-time.Hour).Truncate(time.Second)
		if i == 0 {
			if err := os.Chtimes(c.path("kube-proxy.json"), old, old); err != nil {
				t.Fatal(err)
			}
			written[i] = old
		}
	}
	if !written[1].Equal(written[0]) {
		t.Errorf("written at %v, and again at %v", written[0], written[1])
	}
}

// Nothing of the cluster may be reached from another machine.
func TestServersListenOnThisMachineOnly(t *testing.T) {
	c := testCluster(t)
	for _, s := range slices.Concat(c.registries(), c.controlPlane(), []service{c.agentService(NodeAgent)}) {
		for _, a := range s.args {
			if strings.Contains(a, "0.0.0.0") {
				t.Errorf("%s listens everywhere: %s", s.name, a)
			}
		}
	}
	for _, s := range []service{c.apiserver(), c.controllerManager(), c.scheduler()} {
		if !slices.ContainsFunc(s.args, func(a string) bool {
			return a == "--bind-address=127.0.0.1" || a == "--bind-address=10.192.0.1"
		}) {
			t.Errorf("%s has no address to listen on", s.name)
		}
	}
}

// A process is told from a stranger with its number by an argument in the cluster's directory.
func TestEveryProcessIsRecognised(t *testing.T) {
	c := testCluster(t)
	all := slices.Concat(c.registries(), c.controlPlane(), []service{c.proxy(), c.dns(), c.agentService(Kubelet), c.agentService(NodeAgent)})
	for _, s := range all {
		if !c.isOurs(append([]string{s.file}, s.args...)) {
			t.Errorf("%s has no argument in %s: %q", s.name, c.dir, s.args)
		}
	}
	if c.isOurs([]string{"etcd", "--data-dir=" + c.dir + "2/etcd"}) {
		t.Error("another cluster's process was taken for ours")
	}
}

func TestProgramsAreKnown(t *testing.T) {
	for _, name := range slices.Concat(ControlPlanePrograms(), ImagePrograms(), JudgePrograms(), agentPrograms(Kubelet)) {
		p, err := find(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := os.Stat(filepath.Join("..", "tools", p.module, "go.sum")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommandOfAProgram(t *testing.T) {
	kubelet, _ := find("kubelet")
	if got := strings.Join(kubelet.command("out"), " "); !strings.HasPrefix(got, "build ") || !strings.Contains(got, "gitVersion=v1.37.2") ||
		!strings.HasSuffix(got, "-o out k8s.io/kubernetes/cmd/kubelet") {
		t.Errorf("kubelet: go %s", got)
	}
	specs, _ := find("e2e.test")
	if got := strings.Join(specs.command("out"), " "); !strings.HasPrefix(got, "test -c ") {
		t.Errorf("e2e.test: go %s", got)
	}
	etcd, _ := find("etcd")
	if got := strings.Join(etcd.command("out"), " "); strings.Contains(got, "gitVersion") {
		t.Errorf("etcd: go %s", got)
	}
}
