package podprobe

import (
	"strings"

	v1 "k8s.io/api/core/v1"
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
		out[i] = expand(s, values)
	}
	return out
}

// expand knows $(NAME), and $$ for one $ that begins nothing. A value is not expanded again.
func expand(s string, values map[string]string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
		case strings.HasPrefix(after, "(") && closed:
			v, ok := values[name]
			if !ok {
				v = "$(" + name + ")"
			}
			b.WriteString(v)
			s = rest
		default:
			b.WriteByte('$')
			s = after
		}
	}
}
