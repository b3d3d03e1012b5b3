package network

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Limits of resolv.conf that are kept (KEP-2595).
const (
	maxServers     = 3
	maxSearches    = 32
	maxSearchChars = 2048
	maxSearch      = 253
)

// DNS is how this node resolves names for its pods.
type DNS struct {
	Servers []string // of the cluster; none: pods use the host's
	Domain  string   // of the cluster, such as cluster.local; empty: no cluster search domains
	Host    Resolv   // the host's own settings
	Instead *Resolv  // for pods that are to have the host's settings, when they are not to have these; nil: they are
	Unread  error    // why the host's settings could not be read; nil: they were
}

// Resolv is the content of a resolv.conf.
type Resolv struct{ Servers, Searches, Options []string }

// Parse reads a resolv.conf. The last search line wins, also an empty one; lines it does not know are passed over.
func Parse(file []byte) (r Resolv) {
	for line := range strings.Lines(string(file)) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "nameserver":
			if len(f) < 2 {
				continue
			}
			r.Servers = append(r.Servers, f[1])
		case "search":
			r.Searches = nil
			for _, s := range f[1:] {
				if s = strings.TrimSuffix(s, "."); s != "" {
					r.Searches = append(r.Searches, s)
				}
			}
		case "options":
			r.Options = merge(r.Options, f[1:])
		}
	}
	return r
}

// Missing says that a pod asks for a DNS of the cluster, and that this node of a cluster knows none: the pod gets the
// host's settings.
func (d DNS) Missing(pod *v1.Pod) bool {
	return d.policy(pod) == v1.DNSClusterFirst && len(d.Servers) == 0 && d.Domain != ""
}

// Unknown is why nobody can say how a pod resolves names: it needs settings of the host, which could not be read.
func (d DNS) Unknown(pod *v1.Pod) error {
	if d.Unread == nil || d.policy(pod) == v1.DNSNone {
		return nil
	}
	return fmt.Errorf("the host's resolver settings, which the pod is to have, cannot be read: %w", d.Unread)
}

// For is the resolv.conf of a pod. Warnings name what was left out for being over a limit.
func (d DNS) For(pod *v1.Pod) (r Resolv, warnings []string) {
	switch policy := d.policy(pod); {
	case policy == v1.DNSNone:
	case policy == v1.DNSClusterFirst && len(d.Servers) > 0:
		r.Servers = slices.Clone(d.Servers)
		if d.Domain != "" {
			r.Searches = []string{pod.Namespace + ".svc." + d.Domain, "svc." + d.Domain, d.Domain}
		}
		r.Searches = unique(append(r.Searches, d.Host.Searches...))
		r.Options = []string{"ndots:5"}
	default:
		host := d.Host
		if d.Instead != nil {
			host = *d.Instead
		}
		r = Resolv{slices.Clone(host.Servers), slices.Clone(host.Searches), slices.Clone(host.Options)}
		if !pod.Spec.HostNetwork { // fe80::1%eth0 is a server on a link that only the host has
			r.Servers = slices.DeleteFunc(r.Servers, func(s string) bool { return strings.Contains(s, "%") })
		}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		r.Servers = unique(append(r.Servers, c.Nameservers...))
		r.Searches = unique(append(r.Searches, c.Searches...))
		var own []string
		for _, o := range c.Options {
			if o.Value != nil {
				own = append(own, o.Name+":"+*o.Value)
			} else {
				own = append(own, o.Name)
			}
		}
		r.Options = merge(r.Options, own)
	}
	more := r.limit()
	return r, append(warnings, more...)
}

// policy that holds for the pod: ClusterFirst means the cluster's DNS, unless the pod lives in the host's network.
func (d DNS) policy(pod *v1.Pod) v1.DNSPolicy {
	switch pod.Spec.DNSPolicy {
	case v1.DNSNone, v1.DNSDefault:
		return pod.Spec.DNSPolicy
	case v1.DNSClusterFirst:
		if pod.Spec.HostNetwork {
			return v1.DNSDefault
		}
	case v1.DNSClusterFirstWithHostNet:
	}
	return v1.DNSClusterFirst
}

// limit cuts what resolvers would not read. The warnings are the kubelet's words, which people look for.
func (r *Resolv) limit() (warnings []string) {
	if len(r.Servers) > maxServers {
		r.Servers = r.Servers[:maxServers]
		warnings = append(warnings, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+strings.Join(r.Servers, " "))
	}
	kept := slices.DeleteFunc(slices.Clone(r.Searches[:min(len(r.Searches), maxSearches)]), func(s string) bool { return len(s) > maxSearch })
	fits, length := 0, -1 // no space before the first
	for fits < len(kept) && length+1+len(kept[fits]) <= maxSearchChars {
		length += 1 + len(kept[fits])
		fits++
	}
	if fits < len(r.Searches) {
		warnings = append(warnings, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+strings.Join(kept[:fits], " "))
	}
	r.Searches = kept[:fits]
	return warnings
}

// merge puts options over others of the same name. One with an empty value is one without.
func merge(old, over []string) []string {
	out := slices.Clone(old)
	for _, o := range over {
		o = strings.TrimSuffix(o, ":")
		name, _, _ := strings.Cut(o, ":")
		i := slices.IndexFunc(out, func(have string) bool { n, _, _ := strings.Cut(have, ":"); return n == name })
		if i < 0 {
			out = append(out, o)
		} else {
			out[i] = o
		}
	}
	return out
}

func unique(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
