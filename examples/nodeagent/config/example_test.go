package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubeletkit/kubeletkit/examples/nodeagent/config"
)

// A node keeps the files and the unit file of its kubelet.
func Example() {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "config.yaml")
	err = os.WriteFile(file, []byte(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 50
cpuManagerPolicy: static
clusterDomian: cluster.local
`), 0o600)
	if err != nil {
		fmt.Println(err)
		return
	}

	fs := flag.NewFlagSet("nodeagent", flag.ContinueOnError)
	line := config.Bind(fs)
	if _, err := line.Parse([]string{"--config", file, "--kubeconfig=/etc/kubernetes/kubelet.conf", "--max-pods=60", "--lock-file=/run/kubelet.lock"}); err != nil {
		fmt.Println(err)
		return
	}
	c, warnings, err := line.Load()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range warnings {
		fmt.Println("warning:", strings.ReplaceAll(w.String(), dir, ""))
	}
	defaults, _, err := config.Load(config.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range config.Unsupported(c, defaults) {
		fmt.Printf("warning: %s has no effect: %s\n", f.Path, f.Note)
	}
	fmt.Println("pods:", c.MaxPods)
	// Output:
	// warning: --lock-file: has no effect: two agents are kept apart by the files of --root-dir
	// warning: /config.yaml: clusterDomian: is no field of KubeletConfiguration v1beta1; it has no effect. Is clusterDomain meant?
	// warning: cpuManagerPolicy has no effect: CPUs, memory and topology are not pinned to containers
	// pods: 60
}
