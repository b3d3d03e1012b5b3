package config

// ignored is the one list of fields that have no effect, and why.
func ignored() map[string]string {
	const (
		managers  = "CPUs, memory and topology are not pinned to containers"
		iptables  = "the agent writes no iptables rules"
		pages     = "the server has no such pages"
		logs      = "logs go to standard error as text, or as the journal wants them"
		cgroups   = "the agent puts no process of the host into a cgroup"
		reserved  = "what is reserved is kept from pods; the service manager limits the system's own cgroups"
		memoryQoS = "no memory is kept for whole classes of pods"
	)
	return map[string]string{
		"volumePluginDir":                     "there are no exec plugins for volumes",
		"streamingConnectionIdleTimeout":      "streams end with their client, the container or the agent",
		"enableContentionProfiling":           "waiting for locks is not recorded",
		"enableDebugFlagsHandler":             pages,
		"contentType":                         "requests to the API server are protobuf",
		"showHiddenMetricsForVersion":         "no metric is hidden",
		"logging.format":                      logs,
		"logging.flushFrequency":              "nothing is buffered",
		"logging.vmodule":                     "the log has one level",
		"logging.options.text.splitStream":    logs,
		"logging.options.text.infoBufferSize": logs,
		"logging.options.json.splitStream":    logs,
		"logging.options.json.infoBufferSize": logs,
		"tracing.endpoint":                    "traces are not sent",
		"tracing.samplingRatePerMillion":      "traces are not sent",

		"runOnce":                "the agent runs until it is stopped",
		"podCIDR":                "addresses of pods come from the network plugin",
		"hairpinMode":            "bridges belong to the network plugin",
		"makeIPTablesUtilChains": iptables,
		"iptablesMasqueradeBit":  iptables,
		"iptablesDropBit":        iptables,
		"configMapAndSecretChangeDetectionStrategy": "objects in use are always watched",
		"enableControllerAttachDetach":              "volumes are attached by the controller",
		"volumeStatsAggPeriod":                      "use of volumes is looked up when it is asked for",

		"kubeletCgroups":               cgroups,
		"systemCgroups":                cgroups,
		"systemReservedCgroup":         reserved,
		"kubeReservedCgroup":           reserved,
		"oomScoreAdj":                  "the service manager sets it (OOMScoreAdjust=)",
		"maxOpenFiles":                 "the service manager sets it (LimitNOFILE=)",
		"protectKernelDefaults":        "the agent changes no kernel settings",
		"kernelMemcgNotification":      "the kernel always tells when memory runs short",
		"cpuManagerPolicy":             managers,
		"cpuManagerPolicyOptions":      managers,
		"cpuManagerReconcilePeriod":    managers,
		"memoryManagerPolicy":          managers,
		"reservedMemory":               managers,
		"topologyManagerPolicy":        managers,
		"topologyManagerPolicyOptions": managers,
		"topologyManagerScope":         managers,
		"qosReserved":                  memoryQoS,
		"defaultPodSysctls":            "pods name their sysctls themselves",
	}
}
