package config

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// inOrder pairs names with durations.
func inOrder(pairs ...any) iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		for pair := range slices.Chunk(pairs, 2) {
			name, _ := pair[0].(string)
			d, _ := pair[1].(metav1.Duration)
			if !yield(name, d.Duration) {
				return
			}
		}
	}
}

func (p *problems) resources(c *v1beta1.KubeletConfiguration) {
	p.reserved("systemReserved", c.SystemReserved)
	p.reserved("kubeReserved", c.KubeReserved)
	p.enforced(c)
	p.oneOf("cgroupDriver", c.CgroupDriver, "cgroupfs", "systemd")
	if c.SystemCgroups != "" && c.CgroupRoot == "" {
		p.add("systemCgroups", c.SystemCgroups, "be empty while cgroupRoot is")
	}
	if c.ReservedSystemCPUs != "" {
		if c.SystemReservedCgroup != "" || c.KubeReservedCgroup != "" {
			p.add("reservedSystemCPUs", c.ReservedSystemCPUs, "be empty while systemReservedCgroup or kubeReservedCgroup is given")
		}
		if _, ok := countCPUs(c.ReservedSystemCPUs); !ok {
			p.add("reservedSystemCPUs", c.ReservedSystemCPUs, "be numbers and ranges such as 0-3,7")
		}
	}
	number(p, "oomScoreAdj", c.OOMScoreAdj, -1000, 1000)
	number(p, "maxOpenFiles", &c.MaxOpenFiles, 0, math.MaxInt64)
	number(p, "iptablesMasqueradeBit", c.IPTablesMasqueradeBit, 0, 31)
	number(p, "iptablesDropBit", c.IPTablesDropBit, 0, 31)
	if period := c.CPUCFSQuotaPeriod; period != nil && (period.Duration < time.Millisecond || period.Duration > time.Second) {
		p.add("cpuCFSQuotaPeriod", period.Duration, "be between 1ms and 1s")
	}
	if f := c.MemoryThrottlingFactor; f != nil && (*f <= 0 || *f > 1) {
		p.add("memoryThrottlingFactor", *f, "be more than 0 and at most 1")
	}
	if c.UserNamespaces != nil && c.UserNamespaces.IDsPerPod != nil {
		if n := *c.UserNamespaces.IDsPerPod; n < 65536 || n%65536 != 0 || n > math.MaxUint32 {
			p.add("userNamespaces.idsPerPod", n, "be a multiple of 65536 below 2^32")
		}
	}
	if len(c.DefaultPodSysctls) > 0 {
		p.add("defaultPodSysctls", "given", "be left out: its feature gate is off in Kubernetes 1.37")
	}
}

// reserved checks quantities of resources that are kept from pods.
func (p *problems) reserved(path string, resources map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		at, value := path+"."+name, resources[name]
		if !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, name) {
			p.add(path, name, "name only cpu, memory, ephemeral-storage and pid")
		}
		if q, err := resource.ParseQuantity(value); err != nil || q.Sign() < 0 {
			p.add(at, value, "be a quantity of 0 or more, such as 500m, 2 or 1Gi")
		}
	}
}

func (p *problems) enforced(c *v1beta1.KubeletConfiguration) {
	const path = "enforceNodeAllocatable"
	cgroup := map[string]string{
		"system-reserved": c.SystemReservedCgroup, "system-reserved-compressible": c.SystemReservedCgroup,
		"kube-reserved": c.KubeReservedCgroup, "kube-reserved-compressible": c.KubeReservedCgroup, "pods": "always there",
	}
	for i, what := range c.EnforceNodeAllocatable {
		whose, compressible := strings.CutSuffix(what, "-compressible")
		switch above, known := cgroup[what]; {
		case slices.Index(c.EnforceNodeAllocatable, what) < i:
			p.add(path, what, "be given once")
		case what == "none":
			if len(c.EnforceNodeAllocatable) > 1 {
				p.add(path, what, "stand alone")
			}
		case !known:
			p.oneOf(path, what, append(slices.Sorted(maps.Keys(cgroup)), "none")...)
		case above == "":
			p.add(path, what, "come with %sCgroup", strings.Replace(whose, "-r", "R", 1))
		case compressible && slices.Contains(c.EnforceNodeAllocatable, whose):
			p.add(path, what, "not be given together with %q", whose)
		}
		if what != "none" && c.CgroupsPerQOS != nil && !*c.CgroupsPerQOS {
			p.add(path, what, "be none while cgroupsPerQOS is false")
		}
	}
}

// reserveCPUs has CPUs that are reserved by their numbers kept from pods, in place of all else that is said of cpu.
func reserveCPUs(c *v1beta1.KubeletConfiguration) {
	n, _ := countCPUs(c.ReservedSystemCPUs)
	if n == 0 {
		return
	}
	c.KubeReserved, c.SystemReserved = maps.Clone(c.KubeReserved), maps.Clone(c.SystemReserved)
	delete(c.KubeReserved, "cpu")
	if c.SystemReserved == nil {
		c.SystemReserved = map[string]string{}
	}
	c.SystemReserved["cpu"] = strconv.Itoa(n)
}

const mostCPUs = 1 << 16 // more than any kernel supports

// countCPUs tells how many CPUs a list such as 0-3,7 names, and whether it can be read.
func countCPUs(list string) (n int, ok bool) {
	named := map[int]bool{}
	for part := range strings.SplitSeq(list, ",") {
		first, last, ranged := strings.Cut(part, "-")
		low, err := strconv.Atoi(first)
		if err != nil || low < 0 || low > mostCPUs {
			return 0, false
		}
		high := low
		if ranged {
			if high, err = strconv.Atoi(last); err != nil || high < low || high > mostCPUs {
				return 0, false
			}
		}
		for cpu := low; cpu <= high; cpu++ {
			named[cpu] = true
		}
	}
	return len(named), true
}

// choices checks the fields that take one of a few words.
func (p *problems) choices(c *v1beta1.KubeletConfiguration) {
	p.oneOf("hairpinMode", c.HairpinMode, v1beta1.PromiscuousBridge, v1beta1.HairpinVeth, v1beta1.HairpinNone)
	p.oneOf("topologyManagerPolicy", c.TopologyManagerPolicy, v1beta1.NoneTopologyManagerPolicy, v1beta1.BestEffortTopologyManagerPolicy,
		v1beta1.RestrictedTopologyManagerPolicy, v1beta1.SingleNumaNodeTopologyManagerPolicy)
	p.oneOf("topologyManagerScope", c.TopologyManagerScope, v1beta1.ContainerTopologyManagerScope, v1beta1.PodTopologyManagerScope)
	p.oneOf("memoryReservationPolicy", string(c.MemoryReservationPolicy),
		string(v1beta1.NoneMemoryReservationPolicy), string(v1beta1.TieredReservationMemoryReservationPolicy))
	p.oneOf("memorySwap.swapBehavior", c.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
	p.oneOf("imagePullCredentialsVerificationPolicy", string(c.ImagePullCredentialsVerificationPolicy), string(v1beta1.NeverVerify),
		string(v1beta1.NeverVerifyPreloadedImages), string(v1beta1.NeverVerifyAllowlistedImages), string(v1beta1.AlwaysVerify))
	if len(c.PreloadedImagesVerificationAllowlist) > 0 && c.ImagePullCredentialsVerificationPolicy != v1beta1.NeverVerifyAllowlistedImages {
		p.add("preloadedImagesVerificationAllowlist", c.PreloadedImagesVerificationAllowlist,
			"be left out unless imagePullCredentialsVerificationPolicy is %s", v1beta1.NeverVerifyAllowlistedImages)
	}
	for i, pattern := range c.PreloadedImagesVerificationAllowlist {
		if !imagePattern(pattern) {
			p.add(fmt.Sprintf("preloadedImagesVerificationAllowlist[%d]", i), pattern, "be a name without tag and digest, such as registry.example.org/team/app, or end with /*")
		}
	}
}

// imagePattern says that a pattern names one image, whatever its tag, or all below a path.
func imagePattern(pattern string) bool {
	if path, below := strings.CutSuffix(pattern, "/*"); below {
		return path != "" && !strings.Contains(path, "*") && path == strings.TrimSpace(path)
	}
	ref, err := reference.Parse(pattern)
	named, ok := ref.(reference.Named)
	return err == nil && ok && reference.IsNameOnly(named)
}

func (p *problems) shutdown(c *v1beta1.KubeletConfiguration) {
	all, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	for path, v := range inOrder("shutdownGracePeriod", c.ShutdownGracePeriod, "shutdownGracePeriodCriticalPods", c.ShutdownGracePeriodCriticalPods) {
		if v != 0 && v < time.Second {
			p.add(path, v, "be 0, or 1s or more")
		}
	}
	if critical > all {
		p.add("shutdownGracePeriodCriticalPods", critical, "be at most shutdownGracePeriod, which is %s", all)
	}
	if len(c.ShutdownGracePeriodByPodPriority) > 0 && (all > 0 || critical > 0) {
		p.add("shutdownGracePeriodByPodPriority", fmt.Sprintf("a list of %d", len(c.ShutdownGracePeriodByPodPriority)),
			"be left out while shutdownGracePeriod is given, or the other way round")
	}
	for i, step := range c.ShutdownGracePeriodByPodPriority {
		number(p, fmt.Sprintf("shutdownGracePeriodByPodPriority[%d].shutdownGracePeriodSeconds", i), &step.ShutdownGracePeriodSeconds, 0, math.MaxInt64)
	}
}
