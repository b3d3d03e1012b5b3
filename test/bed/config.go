package bed

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/kubeletkit/kubeletkit/test/images"
)

// configText is containerd's configuration. What would be shared with another containerd on this machine
// (shim sockets, runc's state, network namespaces, NRI's socket) is moved under the bed or turned off.
const configText = `version = 3
root = "{{.Dir}}/root"
state = "{{.Dir}}/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{{.Dir}}/containerd.sock"

[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "{{.Sockets}}"

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{{.Pause}}"

[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{{.Dir}}/registry"

[plugins."io.containerd.cri.v1.runtime"]
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = {{.RestrictOOM}}

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{{.Dir}}/cni"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    Root = "{{.Dir}}/runc"
    SystemdCgroup = false

# The same under a second name, for pods with a runtime class.
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.test-handler]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.test-handler.options]
    Root = "{{.Dir}}/runc"
    SystemdCgroup = false
`

// networkText is the pods' network: a bridge with addresses of its own, and a way out.
const networkText = `{
  "cniVersion": "1.0.0",
  "name": "{{.Bridge}}",
  "plugins": [
    {
      "type": "bridge", "bridge": "{{.Bridge}}", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "{{.Dir}}/ipam",
        "ranges": [[{"subnet": "{{.Subnet}}"}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

const crictlText = `runtime-endpoint: unix://{{.Dir}}/containerd.sock
image-endpoint: unix://{{.Dir}}/containerd.sock
timeout: 60
`

// render fills in the files for a bed in dir, by their names.
func render(dir string, s state) (map[string]string, error) {
	values := struct {
		state
		Dir, Sockets, Pause string
	}{s, dir, socketDir(dir), images.Pause}
	files := map[string]string{
		"containerd.toml":     configText,
		"cni/10-bed.conflist": networkText,
		"crictl.yaml":         crictlText,
	}
	for name, text := range files {
		var out strings.Builder
		if err := template.Must(template.New(name).Parse(text)).Execute(&out, values); err != nil {
			return nil, err
		}
		files[name] = out.String()
	}
	return files, nil
}

// writeConfig writes the files containerd and crictl read.
func (b *Bed) writeConfig(s state) error {
	files, err := render(b.dir, s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(socketDir(b.dir), 0o700); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(b.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// socketDir is where the shims listen. Their sockets have long names, so it must be short.
func socketDir(dir string) string { return "/run/kubeletkit/" + key(dir) }

// key is a short name for a directory.
func key(dir string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:8] }
