package bed

import (
	"path/filepath"
	"slices"

	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// running is the process number of this bed's containerd; zero: it does not run.
func (b *Bed) running() int { return process.FromFile(b.path("containerd.pid"), b.isContainerd) }

func (b *Bed) isContainerd(args []string) bool {
	i := slices.Index(args, "--config")
	return i > 0 && i+1 < len(args) && args[i+1] == b.path("containerd.toml")
}

func (b *Bed) isShim(args []string) bool {
	i := slices.Index(args, "-address")
	return i > 0 && i+1 < len(args) && args[i+1] == b.path("containerd.sock") &&
		filepath.Base(args[0]) == "containerd-shim-runc-v2"
}
