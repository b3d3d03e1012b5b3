package config

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// Default fills in what is not set, with the values of kubelet v1.37.2. Zero counts as not set, except where the field is a
// pointer. It leaves evictionHard alone: Load gives it defaults only when the file says nothing of it.
func Default(c *v1beta1.KubeletConfiguration) {
	defaultServer(c)
	defaultSync(c)
	defaultImages(c)
	defaultResources(c)
	defaultHost(c)
}

// defaultEvictionHard is what a node defends when its file does not say.
func defaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// defaultEviction gives evictionHard its defaults, as is done for the file alone and before drop-ins.
func defaultEviction(c *v1beta1.KubeletConfiguration) {
	switch {
	case c.EvictionHard == nil:
		c.EvictionHard = defaultEvictionHard()
	case c.MergeDefaultEvictionSettings != nil && *c.MergeDefaultEvictionSettings:
		all := defaultEvictionHard()
		maps.Copy(all, c.EvictionHard)
		c.EvictionHard = all
	}
}

func defaultServer(c *v1beta1.KubeletConfiguration) {
	unset(&c.EnableServer, new(true))
	unset(&c.Address, "0.0.0.0")
	unset(&c.Port, 10250)
	unset(&c.HealthzPort, new(int32(10248)))
	unset(&c.HealthzBindAddress, "127.0.0.1")
	unset(&c.Authentication.Anonymous.Enabled, new(false))
	unset(&c.Authentication.Webhook.Enabled, new(true))
	unset(&c.Authentication.Webhook.CacheTTL, seconds(120))
	unset(&c.Authorization.Mode, v1beta1.KubeletAuthorizationModeWebhook)
	unset(&c.Authorization.Webhook.CacheAuthorizedTTL, seconds(300))
	unset(&c.Authorization.Webhook.CacheUnauthorizedTTL, seconds(30))
	unset(&c.StreamingConnectionIdleTimeout, seconds(4*3600))
	unset(&c.EnableDebuggingHandlers, new(true))
	unset(&c.EnableProfilingHandler, new(true))
	unset(&c.EnableDebugFlagsHandler, new(true))
	unset(&c.EnableSystemLogHandler, new(true))
	unset(&c.EnableSystemLogQuery, new(false))
	unset(&c.ContentType, "application/vnd.kubernetes.protobuf")
	unset(&c.KubeAPIQPS, new(int32(50)))
	unset(&c.KubeAPIBurst, 100)
	unset(&c.EventRecordQPS, new(int32(50)))
	unset(&c.EventBurst, 100)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

func defaultSync(c *v1beta1.KubeletConfiguration) {
	unset(&c.SyncFrequency, seconds(60))
	unset(&c.FileCheckFrequency, seconds(20))
	unset(&c.HTTPCheckFrequency, seconds(20))
	unset(&c.PodLogsDir, "/var/log/pods")
	unset(&c.MaxPods, 110)
	unset(&c.RegisterNode, new(true))
	// Who asks for a certain frequency of looking gets that of telling too.
	report := c.NodeStatusUpdateFrequency
	unset(&report, seconds(300))
	unset(&c.NodeStatusReportFrequency, report)
	unset(&c.NodeStatusUpdateFrequency, seconds(10))
	unset(&c.NodeLeaseDurationSeconds, 40)
	unset(&c.NodeStatusMaxImages, new(int32(50)))
	unset(&c.ConfigMapAndSecretChangeDetectionStrategy, v1beta1.WatchChangeDetectionStrategy)
	unset(&c.EnableControllerAttachDetach, new(true))
	unset(&c.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	unset(&c.VolumeStatsAggPeriod, seconds(60))
	unset(&c.CrashLoopBackOff.MaxContainerRestartPeriod, new(seconds(300)))
}

func defaultImages(c *v1beta1.KubeletConfiguration) {
	unset(&c.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	unset(&c.RuntimeRequestTimeout, seconds(120))
	unset(&c.RegistryPullQPS, new(int32(5)))
	unset(&c.RegistryBurst, 10)
	// More than one pull at once says that they are not one after the other.
	unset(&c.SerializeImagePulls, new(c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls < 2))
	unset(&c.ImagePullCredentialsVerificationPolicy, v1beta1.NeverVerifyPreloadedImages)
	unset(&c.ImageMinimumGCAge, seconds(120))
	unset(&c.ImageGCHighThresholdPercent, new(int32(85)))
	unset(&c.ImageGCLowThresholdPercent, new(int32(80)))
	unset(&c.ContainerLogMaxSize, "10Mi")
	unset(&c.ContainerLogMaxFiles, new(int32(5)))
	unset(&c.ContainerLogMaxWorkers, new(int32(1)))
	unset(&c.ContainerLogMonitorInterval, new(seconds(10)))
}

func defaultResources(c *v1beta1.KubeletConfiguration) {
	unset(&c.CgroupsPerQOS, new(true))
	unset(&c.CgroupDriver, "cgroupfs")
	unset(&c.CPUCFSQuota, new(true))
	unset(&c.CPUCFSQuotaPeriod, new(metav1.Duration{Duration: 100 * time.Millisecond}))
	unset(&c.CPUManagerPolicy, "none")
	unset(&c.CPUManagerReconcilePeriod, seconds(10))
	unset(&c.MemoryManagerPolicy, v1beta1.NoneMemoryManagerPolicy)
	unset(&c.MemoryReservationPolicy, v1beta1.NoneMemoryReservationPolicy)
	unset(&c.TopologyManagerPolicy, v1beta1.NoneTopologyManagerPolicy)
	unset(&c.TopologyManagerScope, v1beta1.ContainerTopologyManagerScope)
	unset(&c.EvictionPressureTransitionPeriod, seconds(300))
	unset(&c.MergeDefaultEvictionSettings, new(false))
	unset(&c.LocalStorageCapacityIsolation, new(true))
	if c.EnforceNodeAllocatable == nil { // an empty list is an answer
		c.EnforceNodeAllocatable = []string{"pods"}
	}
	if c.PodPidsLimit == nil || *c.PodPidsLimit < 0 {
		c.PodPidsLimit = new(int64(-1))
	}
}

func defaultHost(c *v1beta1.KubeletConfiguration) {
	unset(&c.OOMScoreAdj, new(int32(-999)))
	unset(&c.MaxOpenFiles, 1000000)
	unset(&c.ResolverConfig, new("/etc/resolv.conf"))
	unset(&c.HairpinMode, v1beta1.PromiscuousBridge)
	unset(&c.MakeIPTablesUtilChains, new(true))
	unset(&c.IPTablesMasqueradeBit, new(int32(14)))
	unset(&c.IPTablesDropBit, new(int32(15)))
	unset(&c.FailSwapOn, new(true))
	unset(&c.FailCgroupV1, new(true))
	unset(&c.SeccompDefault, new(false))
}

// unset puts a value where there is none.
func unset[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func seconds(n int64) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Second}
}
