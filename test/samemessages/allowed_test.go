package samemessages

import (
	"regexp"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/internal/podcases"
)

// allowed takes from both texts what may differ, and only that.
func allowed(c *podcases.Case, theirs, ours string) (want, got string) {
	// When a pod was first seen.
	seen := regexp.MustCompile(`(kubernetes.io/config.seen): .*`)
	want, got = seen.ReplaceAllString(theirs, "$1: SEEN"), seen.ReplaceAllString(ours, "$1: SEEN")

	// Where one volume is an image, the kubelet tells of the subPath of every other volume as if it were within an image,
	// beside the path of the place it bound it to. Runtimes do not look at it without an image.
	if c.Name == "m17-volumes-local" {
		want = strings.Replace(want, "    imageSubPath: a/b/c\n", "", 1)
	}

	// In a cluster without a domain the kubelet ends a full name with a dot, which is no hostname.
	if c.Name == "m24-names" {
		want = strings.Replace(want, "hostname: web-0.web.default.svc.\n", "hostname: web-0.web.default.svc\n", 1)
	}

	// Our reasons for a refusal begin with the kubelet's, and go on to say what to do.
	for _, head := range []string{"--- # FailedCreatePodSandBox: ", "--- # CreateContainerConfigError: "} {
		_, full, found := strings.Cut(want, head)
		full = strings.TrimRight(full, ".\n")
		if at := strings.Index(got, head+full); found && at >= 0 {
			want, got = strings.TrimRight(want, ".\n"), got[:at+len(head)+len(full)]
		}
	}
	return want, got
}

// allowedIn takes from what two answers hold what may differ, and of metrics those that only one has. All of it has a line in
// docs/differences.md.
func allowedIn(path string, theirs, ours []string) (want, got []string) {
	base, _, _ := strings.Cut(path, "?")
	metrics := strings.HasPrefix(base, "/metrics")
	may := map[string]string{
		"/configz": `^\.kubeletconfig\.tls(Cert|PrivateKey)File$`, // our own certificate is no setting
		"/stats/summary": `\.psi\.|\.io\.time$|\.usageNanoCores$|\.process_stats\.|^\.node\.systemContainers\[(kubelet|runtime)\]` +
			`|^\.node\.systemContainers\[pods\]\.swap\.|\.rootfs\.(available|capacity)Bytes$|\.swap\.swapAvailableBytes$|\.memory\.(usageBytes|availableBytes|rssBytes|pageFaults|majorPageFaults)$`,
		"/metrics":          `^(kubelet_working_pods|kubernetes_build_info) `,
		"/metrics/cadvisor": `^machine_(cpu_cores|memory_bytes) `,
	}[base]
	left := func(list, other []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(has string) bool {
			name, _, _ := strings.Cut(has, " ")
			both := slices.ContainsFunc(other, func(o string) bool { return strings.HasPrefix(o, name+" ") })
			return metrics && !both || may != "" && regexp.MustCompile(may).MatchString(has)
		})
	}
	return left(theirs, ours), left(ours, theirs)
}
