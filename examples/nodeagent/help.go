package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A subsystem is a part of the agent, with the flags that are about it.
type subsystem struct{ title, flags string }

// subsystems are the sections of --help. A flag that is in none comes last; one without effect is only named.
func subsystems() []subsystem {
	return []subsystem{
		{"Configuration and files", "config config-dir strict-config root-dir cert-dir feature-gates v logging-format"},
		{"Cluster", "kubeconfig bootstrap-kubeconfig rotate-certificates rotate-server-certificates kube-api-content-type kube-api-qps kube-api-burst " +
			"event-qps event-burst offline-cache offline-cache-key"},
		{"Node", "hostname-override node-ip node-labels cloud-provider provider-id register-node register-with-taints node-status-update-frequency " +
			"node-status-max-images max-pods pods-per-core pod-cidr"},
		{"Pods from files and URLs", "pod-manifest-path manifest-url manifest-url-header file-check-frequency http-check-frequency sync-frequency runonce"},
		{"Container runtime and images", "container-runtime-endpoint image-service-endpoint runtime-request-timeout serialize-image-pulls " +
			"max-parallel-image-pulls registry-qps registry-burst image-credential-provider-config image-credential-provider-bin-dir " +
			"minimum-image-ttl-duration image-gc-high-threshold image-gc-low-threshold"},
		{"Pods on the host", "allowed-unsafe-sysctls seccomp-default pod-max-pids cluster-dns cluster-domain resolv-conf hairpin-mode"},
		{"Logs of containers", "pod-logs-dir container-logs-dir container-log-max-size container-log-max-files"},
		{"Volumes", "volume-plugin-dir volume-stats-agg-period enable-controller-attach-detach local-storage-capacity-isolation"},
		{"The node's API: where", "enable-server address port read-only-port healthz-port healthz-bind-address tls-cert-file tls-private-key-file " +
			"tls-cipher-suites tls-min-version streaming-connection-idle-timeout enable-debugging-handlers contention-profiling"},
		{"The node's API: who", "anonymous-auth client-ca-file authentication-token-webhook authentication-token-webhook-cache-ttl authorization-mode " +
			"authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl"},
		{"Resources of the machine", "system-reserved kube-reserved reserved-cpus enforce-node-allocatable system-reserved-cgroup kube-reserved-cgroup " +
			"kubelet-cgroups system-cgroups cgroups-per-qos cgroup-driver cgroup-root fail-swap-on fail-cgroupv1 cpu-cfs-quota cpu-cfs-quota-period " +
			"cpu-manager-policy cpu-manager-policy-options cpu-manager-reconcile-period memory-manager-policy topology-manager-policy " +
			"topology-manager-policy-options topology-manager-scope qos-reserved oom-score-adj max-open-files protect-kernel-defaults " +
			"kernel-memcg-notification make-iptables-util-chains"},
		{"Eviction", "eviction-hard eviction-soft eviction-soft-grace-period eviction-minimum-reclaim eviction-pressure-transition-period " +
			"eviction-max-pod-grace-period"},
	}
}

const noEffect = "has no effect"

// words are the commands, as help and completion show them.
func words() [][2]string {
	return [][2]string{
		{"pods", "show the pods of a running agent; --watch: go on and show changes"},
		{"gc", "have a running agent remove what no pod needs; --dry-run: only say what, and why"},
		{"check", "tell what is missing on this machine, and how to mend it"},
		{"config", "show the configuration that flags and files come to; --unsupported: what of it has no effect"},
		{"completion", "print the completion of these words for bash, zsh or fish"},
		{"help", "print this page"},
	}
}

// help writes the page of the agent and its flags.
func help(out io.Writer, f *flag.FlagSet) error {
	p := page{width: 96}
	p.title("Usage")
	p.entry("nodeagent [flags]", "keep the pods of this node running")
	for _, w := range words() {
		p.entry("nodeagent "+w[0], w[1])
	}
	p.line("")
	p.wrap("", "Flags are the kubelet's. Most stand for a field of the KubeletConfiguration, which is named in brackets, and go over what the "+
		"file says. --name=value and --name value are the same, and underscores are dashes.")
	var deaf []string
	section := func(title string, flags []*flag.Flag) {
		heard := slices.DeleteFunc(slices.Clone(flags), func(fl *flag.Flag) bool { return strings.HasPrefix(fl.Usage, noEffect) })
		for _, fl := range flags {
			if !slices.Contains(heard, fl) {
				deaf = append(deaf, "--"+fl.Name)
			}
		}
		if len(heard) == 0 {
			return
		}
		p.title(title)
		for _, fl := range heard {
			p.flag(fl)
		}
	}
	for _, s := range subsystems() {
		section(s.title, pick(f, s.flags))
	}
	section("Others", ungrouped(f))
	p.title("Taken for the sake of unit files, without effect")
	slices.Sort(deaf)
	p.wrap("  ", strings.Join(deaf, " "))
	_, err := io.WriteString(out, p.text.String())
	return err
}

// pick are the flags with these names, those that there are.
func pick(f *flag.FlagSet, names string) (out []*flag.Flag) {
	for name := range strings.FieldsSeq(names) {
		if fl := f.Lookup(name); fl != nil {
			out = append(out, fl)
		}
	}
	return out
}

// ungrouped are the flags of no subsystem.
func ungrouped(f *flag.FlagSet) (out []*flag.Flag) {
	grouped := map[string]bool{}
	for _, s := range subsystems() {
		for name := range strings.FieldsSeq(s.flags) {
			grouped[name] = true
		}
	}
	f.VisitAll(func(fl *flag.Flag) {
		if !grouped[fl.Name] {
			out = append(out, fl)
		}
	})
	return out
}

// page is text of limited width.
type page struct {
	text  strings.Builder
	width int
}

func (p *page) line(s string) { p.text.WriteString(strings.TrimRight(s, " ") + "\n") }

func (p *page) title(s string) {
	if p.text.Len() > 0 {
		p.line("")
	}
	p.line(s)
}

// entry is a word and what it means, on one line.
func (p *page) entry(name, what string) { p.line(fmt.Sprintf("  %-22s %s", name, what)) }

// flag is a flag, and below it what it does.
func (p *page) flag(fl *flag.Flag) {
	value, usage := flag.UnquoteUsage(fl)
	head := "  --" + fl.Name
	if value != "" {
		head += " " + value
	}
	if fl.DefValue != "" && fl.DefValue != "false" {
		usage += "; by itself " + fl.DefValue
	}
	p.line(head)
	p.wrap("        ", usage)
}

// wrap breaks text between words.
func (p *page) wrap(indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line) > len(indent) && len(line)+len(word) >= p.width {
			p.line(line)
			line = indent
		}
		line += word + " "
	}
	p.line(line)
}
