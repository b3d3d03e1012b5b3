package podprobe

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// expandAll replaces $(NAME) in a command by values that stand literally in the spec. A variable whose value comes
// from elsewhere is empty here, as the kubelet has it; one that does not exist stays as it is written.
func expandAll(cmd []string, env []v1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for i := range env {
		values[env[i].Name] = env[i].Value
	}
	out := make([]string, len(cmd))
	for i, s := range cmd {
		out[i] = podspec.Expand(s, func(name string) (string, bool) { v, ok := values[name]; return v, ok })
	}
	return out
}
