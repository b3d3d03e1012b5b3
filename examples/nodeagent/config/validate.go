package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubelet/config/v1beta1"
)

// Validate tells everything that is wrong with a configuration that has its defaults, one error for each problem, joined: the path,
// the value, and what it must be. It looks at the configuration alone, never at the host.
func Validate(c *v1beta1.KubeletConfiguration) error {
	var p problems
	p.server(c)
	p.frequencies(c)
	p.pods(c)
	p.images(c)
	p.resources(c)
	p.choices(c)
	p.shutdown(c)
	p.eviction(c)
	p.ignored(c)
	return errors.Join(p.errs...)
}

// problems collects what is wrong.
type problems struct{ errs []error }

func (p *problems) add(path string, value any, must string, args ...any) {
	if s, ok := value.(string); ok {
		value = fmt.Sprintf("%q", s)
	}
	p.errs = append(p.errs, fmt.Errorf("%s: is %v; it must %s", path, value, fmt.Sprintf(must, args...)))
}

func number[T int32 | int64](p *problems, path string, v *T, low, high T) {
	switch {
	case v == nil || *v >= low && *v <= high:
	case int64(high) == math.MaxInt32 || int64(high) == math.MaxInt64:
		p.add(path, *v, "be %d or more", low)
	default:
		p.add(path, *v, "be between %d and %d", low, high)
	}
}

func (p *problems) atLeast(path string, v, least time.Duration) {
	if v < least {
		p.add(path, v, "be %s or more", least)
	}
}

func (p *problems) oneOf(path, v string, allowed ...string) {
	if !slices.Contains(allowed, v) {
		p.add(path, v, "be one of %s", strings.Join(quoted(allowed), ", "))
	}
}

func quoted(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = fmt.Sprintf("%q", s)
	}
	return out
}

func (p *problems) address(path, v string) {
	if _, err := netip.ParseAddr(v); err != nil {
		p.add(path, v, "be an IP address")
	}
}

func (p *problems) server(c *v1beta1.KubeletConfiguration) {
	number(p, "port", &c.Port, 1, 65535)
	number(p, "readOnlyPort", &c.ReadOnlyPort, 0, 65535)
	number(p, "healthzPort", c.HealthzPort, 0, 65535)
	p.address("address", c.Address)
	p.address("healthzBindAddress", c.HealthzBindAddress)
	if (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == "") {
		p.add("tlsCertFile", c.TLSCertFile, "be given together with tlsPrivateKeyFile, or neither")
	}
	if _, err := TLS(c); err != nil {
		p.errs = append(p.errs, err)
	}
	p.oneOf("authorization.mode", string(c.Authorization.Mode),
		string(v1beta1.KubeletAuthorizationModeWebhook), string(v1beta1.KubeletAuthorizationModeAlwaysAllow))
	p.atLeast("authentication.webhook.cacheTTL", c.Authentication.Webhook.CacheTTL.Duration, 0)
	p.atLeast("authorization.webhook.cacheAuthorizedTTL", c.Authorization.Webhook.CacheAuthorizedTTL.Duration, 0)
	p.atLeast("authorization.webhook.cacheUnauthorizedTTL", c.Authorization.Webhook.CacheUnauthorizedTTL.Duration, 0)
	number(p, "kubeAPIQPS", c.KubeAPIQPS, 0, math.MaxInt32)
	number(p, "kubeAPIBurst", &c.KubeAPIBurst, 0, math.MaxInt32)
	number(p, "eventRecordQPS", c.EventRecordQPS, 0, math.MaxInt32)
	number(p, "eventBurst", &c.EventBurst, 0, math.MaxInt32)
	if c.Logging.Verbosity > math.MaxInt32 {
		p.add("logging.verbosity", c.Logging.Verbosity, "be %d or less", math.MaxInt32)
	}
	p.oneOf("logging.format", c.Logging.Format, "text", "json")
	if c.EnableSystemLogQuery != nil && *c.EnableSystemLogQuery && c.EnableSystemLogHandler != nil && !*c.EnableSystemLogHandler {
		p.add("enableSystemLogQuery", true, "be false while enableSystemLogHandler is false")
	}
}

func (p *problems) frequencies(c *v1beta1.KubeletConfiguration) {
	const tick = time.Millisecond
	for path, v := range inOrder(
		"syncFrequency", c.SyncFrequency, "fileCheckFrequency", c.FileCheckFrequency, "httpCheckFrequency", c.HTTPCheckFrequency,
		"nodeStatusUpdateFrequency", c.NodeStatusUpdateFrequency, "nodeStatusReportFrequency", c.NodeStatusReportFrequency,
		"runtimeRequestTimeout", c.RuntimeRequestTimeout,
	) {
		p.atLeast(path, v, tick)
	}
	number(p, "nodeLeaseDurationSeconds", &c.NodeLeaseDurationSeconds, 1, math.MaxInt32)
	number(p, "nodeStatusMaxImages", c.NodeStatusMaxImages, -1, math.MaxInt32)
}

func (p *problems) pods(c *v1beta1.KubeletConfiguration) {
	number(p, "maxPods", &c.MaxPods, 0, math.MaxInt32)
	number(p, "podsPerCore", &c.PodsPerCore, 0, math.MaxInt32)
	if c.RunOnce {
		p.add("runOnce", true, "be false: agents run until they are stopped")
	}
	for i, address := range c.ClusterDNS {
		p.address(fmt.Sprintf("clusterDNS[%d]", i), address)
	}
	if c.ClusterDomain != "" {
		if bad := validation.IsDNS1123Subdomain(strings.TrimSuffix(c.ClusterDomain, ".")); len(bad) > 0 {
			p.add("clusterDomain", c.ClusterDomain, "be a domain such as cluster.local")
		}
	}
	if c.PodCIDR != "" {
		for cidr := range strings.SplitSeq(c.PodCIDR, ",") {
			if _, err := netip.ParsePrefix(strings.TrimSpace(cidr)); err != nil {
				p.add("podCIDR", c.PodCIDR, "be address ranges such as 10.0.0.0/24, with commas between")
				break
			}
		}
	}
	if c.StaticPodURL != "" {
		if u, err := url.Parse(c.StaticPodURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			p.add("staticPodURL", c.StaticPodURL, "be an address that begins with http:// or https://")
		}
	}
	p.logsDir(c.PodLogsDir)
	if _, err := resource.ParseQuantity(c.ContainerLogMaxSize); err != nil {
		p.add("containerLogMaxSize", c.ContainerLogMaxSize, "be a size such as 10Mi")
	}
	number(p, "containerLogMaxFiles", c.ContainerLogMaxFiles, 2, math.MaxInt32)
	number(p, "containerLogMaxWorkers", c.ContainerLogMaxWorkers, 1, math.MaxInt32)
	if c.ContainerLogMonitorInterval != nil {
		p.atLeast("containerLogMonitorInterval", c.ContainerLogMonitorInterval.Duration, 3*time.Second)
	}
	if longest := c.CrashLoopBackOff.MaxContainerRestartPeriod; longest != nil && (longest.Duration < time.Second || longest.Duration > 5*time.Minute) {
		p.add("crashLoopBackOff.maxContainerRestartPeriod", longest.Duration, "be between 1s and 5m")
	}
	for i, taint := range c.RegisterWithTaints {
		p.taint(fmt.Sprintf("registerWithTaints[%d]", i), taint)
	}
}

func (p *problems) logsDir(dir string) {
	ascii := func(r rune) bool { return r > 127 }
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.ContainsFunc(dir, ascii) {
		p.add("podLogsDir", dir, "be an absolute path in plain letters, without . and .. and a slash at its end")
	}
}

func (p *problems) taint(path string, t v1.Taint) {
	if bad := validation.IsQualifiedName(t.Key); len(bad) > 0 {
		p.add(path+".key", t.Key, "be a name such as example.com/dedicated: %s", bad[0])
	}
	if bad := validation.IsValidLabelValue(t.Value); len(bad) > 0 {
		p.add(path+".value", t.Value, "be a value for a label: %s", bad[0])
	}
	p.oneOf(path+".effect", string(t.Effect), string(v1.TaintEffectNoSchedule), string(v1.TaintEffectPreferNoSchedule), string(v1.TaintEffectNoExecute))
	if t.TimeAdded != nil {
		p.add(path+".timeAdded", t.TimeAdded.Time, "be left out")
	}
}

func (p *problems) images(c *v1beta1.KubeletConfiguration) {
	p.endpoint("containerRuntimeEndpoint", c.ContainerRuntimeEndpoint)
	if c.ImageServiceEndpoint != "" {
		p.endpoint("imageServiceEndpoint", c.ImageServiceEndpoint)
	}
	number(p, "registryPullQPS", c.RegistryPullQPS, 0, math.MaxInt32)
	number(p, "registryBurst", &c.RegistryBurst, 0, math.MaxInt32)
	number(p, "maxParallelImagePulls", c.MaxParallelImagePulls, 1, math.MaxInt32)
	if n := c.MaxParallelImagePulls; n != nil && *n > 1 && c.SerializeImagePulls != nil && *c.SerializeImagePulls {
		p.add("maxParallelImagePulls", *n, "be 1 while serializeImagePulls is true; set that to false")
	}
	number(p, "imageGCHighThresholdPercent", c.ImageGCHighThresholdPercent, 0, 100)
	number(p, "imageGCLowThresholdPercent", c.ImageGCLowThresholdPercent, 0, 100)
	if low, high := c.ImageGCLowThresholdPercent, c.ImageGCHighThresholdPercent; low != nil && high != nil && *low >= *high {
		p.add("imageGCLowThresholdPercent", *low, "be less than imageGCHighThresholdPercent, which is %d", *high)
	}
	p.atLeast("imageMinimumGCAge", c.ImageMinimumGCAge.Duration, 0)
	p.atLeast("imageMaximumGCAge", c.ImageMaximumGCAge.Duration, 0)
	if oldest := c.ImageMaximumGCAge.Duration; oldest > 0 && oldest <= c.ImageMinimumGCAge.Duration {
		p.add("imageMaximumGCAge", oldest, "be 0, or more than imageMinimumGCAge, which is %s", c.ImageMinimumGCAge.Duration)
	}
}

func (p *problems) endpoint(path, v string) {
	if !strings.HasPrefix(v, "unix:///") {
		p.add(path, v, "be a socket such as unix:///run/containerd/containerd.sock")
	}
}
