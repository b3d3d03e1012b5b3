package network

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxLabel is the longest hostname Linux takes for a pod.
const maxLabel = 63

// Hostname is the name and the domain of a pod within its cluster domain; domain is empty when the pod has no
// subdomain. A name that is too long is cut; one that no DNS would take is an error.
func Hostname(pod *v1.Pod, clusterDomain string) (name, domain string, err error) {
	if override := pod.Spec.HostnameOverride; override != nil && *override != "" {
		return cut(*override), "", valid("HostnameOverride", *override, "subdomain", validation.IsDNS1123Subdomain)
	}
	name = pod.Name
	if own := pod.Spec.Hostname; own != "" {
		if err := valid("Hostname", own, "label", validation.IsDNS1123Label); err != nil {
			return "", "", err
		}
		name = own
	}
	if sub := pod.Spec.Subdomain; sub != "" {
		if err := valid("Subdomain", sub, "label", validation.IsDNS1123Label); err != nil {
			return "", "", err
		}
		domain = strings.TrimSuffix(sub+"."+pod.Namespace+".svc."+clusterDomain, ".")
	}
	name = cut(name)
	if name == "" {
		return "", "", errors.New("the pod has no usable hostname")
	}
	return name, domain, nil
}

// valid refuses what an API server would have refused.
func valid(field, value, what string, check func(string) []string) error {
	if wrong := check(value); len(wrong) > 0 {
		return fmt.Errorf("pod %s %q is not a valid DNS %s: %s", field, value, what, strings.Join(wrong, ";"))
	}
	return nil
}

// KernelHostname is what the pod's processes see: the name, or name and domain when the pod asks for it
// (setHostnameAsFQDN). The kernel takes no more than 64 characters.
func KernelHostname(pod *v1.Pod, name, domain string) (string, error) {
	if pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN || domain == "" {
		return name, nil
	}
	full := name + "." + domain
	if len(full) > maxLabel+1 {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested); shorten hostname or subdomain", full, maxLabel+1, len(full))
	}
	return full, nil
}

func cut(name string) string {
	return strings.TrimRight(name[:min(len(name), maxLabel)], "-.")
}

// Hosts is the content of a pod's /etc/hosts. host is the content of the node's own file, used by a pod that shares the
// host's network; ips are those of the pod.
func Hosts(pod *v1.Pod, ips []string, name, domain string, host []byte) []byte {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(host)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n")
		for _, line := range [][2]string{
			{"127.0.0.1", "localhost"},
			{"::1", "localhost ip6-localhost ip6-loopback"},
			{"fe00::0", "ip6-localnet"},
			{"fe00::0", "ip6-mcastprefix"},
			{"fe00::1", "ip6-allnodes"},
			{"fe00::2", "ip6-allrouters"},
		} {
			b.WriteString(line[0] + "\t" + line[1] + "\n")
		}
		for _, ip := range ips {
			b.WriteString(ip + "\t")
			if domain != "" {
				b.WriteString(name + "." + domain + "\t")
			}
			b.WriteString(name + "\n")
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range pod.Spec.HostAliases {
			b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
		}
	}
	return b.Bytes()
}
