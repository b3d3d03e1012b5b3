package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Field is a field of a KubeletConfiguration by its path, and what becomes of it.
type Field struct {
	Path string
	Note string // what it does, or why it does nothing
}

// Supported lists the fields that have an effect, by path.
func Supported() []Field { return sorted(honoured()) }

// Ignored lists the fields that are read and checked and have no effect, by path, each with the reason.
func Ignored() []Field { return sorted(ignored()) }

// Unsupported lists the fields whose value in c is not that in defaults and which have no effect, by path. A feature gate counts
// when it asks for something else than Kubernetes 1.37 does by itself; featureGates.Name is its path.
func Unsupported(c, defaults *v1beta1.KubeletConfiguration) (out []Field) {
	usual := map[string]any{}
	leaves("", reflect.ValueOf(*defaults), func(path string, v reflect.Value) { usual[path] = v.Interface() })
	reasons := ignored()
	leaves("", reflect.ValueOf(*c), func(path string, v reflect.Value) {
		if reason, ok := reasons[path]; ok && !same(v, reflect.ValueOf(usual[path])) {
			out = append(out, Field{path, reason})
		}
	})
	out = append(out, oddGates(c.FeatureGates)...)
	slices.SortFunc(out, func(a, b Field) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// same tells whether two values mean the same: nothing and an empty list are one, a pointer stands for what it points to.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Map, reflect.Slice:
		if a.Len() == 0 && b.Len() == 0 {
			return true
		}
	case reflect.Pointer:
		if a.IsNil() != b.IsNil() {
			zero := a
			if a.IsNil() {
				zero = b
			}
			return zero.Elem().IsZero()
		}
	default:
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

func sorted(table map[string]string) (out []Field) {
	for _, path := range slices.Sorted(maps.Keys(table)) {
		out = append(out, Field{path, table[path]})
	}
	return out
}

// honoured is the one list of fields that have an effect, and what that is.
func honoured() map[string]string {
	return map[string]string{
		"shutdownGracePeriod":              "time for pods when the machine shuts down",
		"shutdownGracePeriodCriticalPods":  "part of it that is for critical pods",
		"shutdownGracePeriodByPodPriority": "time for pods at shutdown, by priority",
		"containerLogMaxSize":              "size at which a log file is rotated",
		"containerLogMaxFiles":             "log files that are kept of a container",
		"containerLogMaxWorkers":           "logs rotated at a time",
		"containerLogMonitorInterval":      "time between two looks at the sizes of logs",
		"imageMinimumGCAge":                "unused images younger than this stay",
		"imageMaximumGCAge":                "unused images older than this go; 0: age alone is no reason",
		"imageGCHighThresholdPercent":      "disk use at which images are removed",
		"imageGCLowThresholdPercent":       "disk use down to which images are removed",
		"evictionSoft":                     "thresholds at which pods are evicted after a while",
		"evictionSoftGracePeriod":          "how long a soft threshold must be crossed",
		"evictionMinimumReclaim":           "how far beyond a threshold is reclaimed",
		"evictionPressureTransitionPeriod": "how long pressure is reported after it ended",
		"evictionMaxPodGracePeriod":        "longest grace of a pod evicted for a soft threshold; negative: the pod's own",
		// Server.
		"enableServer":                               "false: nothing is served",
		"address":                                    "address to serve on",
		"port":                                       "port to serve on",
		"readOnlyPort":                               "port for health and metrics without authentication; 0: none",
		"healthzPort":                                "port of the health check; 0: none",
		"healthzBindAddress":                         "address of the health check",
		"tlsCertFile":                                "serving certificate",
		"tlsPrivateKeyFile":                          "key of the serving certificate",
		"tlsCipherSuites":                            "cipher suites offered up to TLS 1.2",
		"tlsMinVersion":                              "oldest version of TLS that is spoken",
		"tlsCurvePreferences":                        "curves of TLS that are offered, by their numbers",
		"rotateCertificates":                         "the client certificate is renewed before it ends",
		"serverTLSBootstrap":                         "the serving certificate is asked of the API server",
		"authentication.x509.clientCAFile":           "authorities whose clients are known by certificate",
		"authentication.webhook.enabled":             "tokens are shown to the API server",
		"authentication.webhook.cacheTTL":            "how long an answer about a token is kept",
		"authentication.anonymous.enabled":           "requests without credentials are let in as system:anonymous",
		"authorization.mode":                         "Webhook: the API server is asked whether a request is allowed",
		"authorization.webhook.cacheAuthorizedTTL":   "how long a yes is kept",
		"authorization.webhook.cacheUnauthorizedTTL": "how long a no is kept",
		"enableDebuggingHandlers":                    "false: no logs, exec, attach, port-forward and profiles",
		"enableSystemLogHandler":                     "false: no logs of the host below /logs/",
		"enableSystemLogQuery":                       "/logs/ answers queries, of the journal too",
		"enableProfilingHandler":                     "false: no profiles of the agent below /debug/pprof/",
		"logging.verbosity":                          "how much is logged",
		// API server.
		"kubeAPIQPS":     "requests a second",
		"kubeAPIBurst":   "requests at once",
		"eventRecordQPS": "events a second; 0: any number",
		"eventBurst":     "events at once",
		// Pods.
		"staticPodPath":        "folder of manifests, or a single one",
		"staticPodURL":         "address of manifests",
		"staticPodURLHeader":   "headers sent to that address",
		"fileCheckFrequency":   "time between two looks at the folder",
		"httpCheckFrequency":   "time between two looks at the address",
		"syncFrequency":        "time between two looks at every pod",
		"maxPods":              "pods on this node",
		"podsPerCore":          "pods for each CPU; 0: any number",
		"podLogsDir":           "folder for log files of containers",
		"allowedUnsafeSysctls": "sysctls that pods may set beyond the safe ones",
		"clusterDNS":           "DNS servers of pods",
		"clusterDomain":        "domain of the cluster",
		"resolvConf":           "resolver settings of the host",

		"crashLoopBackOff.maxContainerRestartPeriod": "longest wait before a container that ended is started again",
		// Node.
		"registerNode":                  "false: the Node object is not created",
		"registerWithTaints":            "taints of a new Node object",
		"providerID":                    "name of the machine at its provider",
		"nodeStatusUpdateFrequency":     "time between two looks at the node",
		"nodeStatusReportFrequency":     "time between two reports of an unchanged node",
		"nodeLeaseDurationSeconds":      "how long the node counts as alive after a sign of life",
		"localStorageCapacityIsolation": "false: ephemeral storage is neither offered nor limited",
		"nodeStatusMaxImages":           "images in the node's status; -1: all",
		"featureGates":                  "kept; what differs from Kubernetes 1.37's own choice is reported",
		// Runtime and images.
		"containerRuntimeEndpoint":               "socket of the container runtime",
		"imageServiceEndpoint":                   "socket of the image service",
		"runtimeRequestTimeout":                  "time a call of the runtime may take",
		"registryPullQPS":                        "pulls a second; 0: any number",
		"registryBurst":                          "pulls at once before that counts",
		"imagePullCredentialsVerificationPolicy": "for which images on this host a pod must show that it may pull them",
		"preloadedImagesVerificationAllowlist":   "images for everybody, with NeverVerifyAllowlistedImages",
		"serializeImagePulls":                    "one pull at a time",
		"maxParallelImagePulls":                  "pulls at once",
		// Resources and the host.
		"cgroupsPerQOS":                "false: pods have no cgroups of their own",
		"cgroupRoot":                   "cgroup, there already, in which those of pods lie",
		"cgroupDriver":                 "how cgroups are named, if the runtime does not say",
		"podPidsLimit":                 "processes and threads of one pod; -1: any number",
		"enforceNodeAllocatable":       "pods: all pods together may not use what is reserved",
		"systemReserved":               "resources kept for the system",
		"kubeReserved":                 "resources kept for the agent",
		"reservedSystemCPUs":           "CPUs, by number, so many of which are kept from pods, whatever else is said of cpu; pods may run on any",
		"cpuCFSQuota":                  "false: CPU limits are not enforced",
		"cpuCFSQuotaPeriod":            "time in which a CPU limit holds",
		"memoryThrottlingFactor":       "how far between request and limit memory slows a container down (cgroup v2)",
		"memoryReservationPolicy":      "TieredReservation: cgroup v2 keeps for pods and their containers the memory they ask for",
		"memorySwap.swapBehavior":      "LimitedSwap: burstable pods get swap by the memory they ask for (cgroup v2)",
		"singleProcessOOMKill":         "out of memory, the kernel kills one process and not all of the container (cgroup v2)",
		"seccompDefault":               "containers that say nothing get the runtime's seccomp profile",
		"userNamespaces.idsPerPod":     "IDs of a pod with a user namespace",
		"failSwapOn":                   "swap on the host is an error",
		"failCgroupV1":                 "cgroup v1 on the host is an error",
		"evictionHard":                 "thresholds at which pods are evicted at once; kept back from what is allocatable",
		"mergeDefaultEvictionSettings": "hard thresholds that are not given keep their defaults",
		// Of every API object.
		"kind":       "what the file is",
		"apiVersion": "version of what the file is",
	}
}
