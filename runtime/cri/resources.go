package cri

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// resources says limits in CRI; none at all is nil.
func resources(r runtime.Resources) *cri.LinuxContainerResources {
	if reflect.ValueOf(r).IsZero() {
		return nil
	}
	k := &cri.LinuxContainerResources{
		CpuPeriod: r.CPUPeriod, CpuQuota: r.CPUQuota, CpuShares: r.CPUShares,
		MemoryLimitInBytes: r.Memory, MemorySwapLimitInBytes: r.MemorySwap, OomScoreAdj: r.OOMScoreAdj,
		CpusetCpus: r.CPUs, CpusetMems: r.Mems, Unified: r.Unified,
	}
	for _, size := range slices.Sorted(maps.Keys(r.Hugepages)) {
		k.HugepageLimits = append(k.HugepageLimits, &cri.HugepageLimit{PageSize: size, Limit: r.Hugepages[size]})
	}
	return k
}

// always says limits in CRI, as the kubelet says those of an overhead: none at all is an empty message.
func always(r runtime.Resources) *cri.LinuxContainerResources {
	return cmp.Or(resources(r), &cri.LinuxContainerResources{})
}

// seenResources reads limits; nil is not known.
func seenResources(k *cri.LinuxContainerResources) *runtime.Resources {
	if k == nil {
		return nil
	}
	r := &runtime.Resources{
		CPUPeriod: k.GetCpuPeriod(), CPUQuota: k.GetCpuQuota(), CPUShares: k.GetCpuShares(),
		Memory: k.GetMemoryLimitInBytes(), MemorySwap: k.GetMemorySwapLimitInBytes(), OOMScoreAdj: k.GetOomScoreAdj(),
		CPUs: k.GetCpusetCpus(), Mems: k.GetCpusetMems(), Unified: k.GetUnified(),
	}
	for _, h := range k.GetHugepageLimits() {
		if r.Hugepages == nil {
			r.Hugepages = map[string]uint64{}
		}
		r.Hugepages[h.GetPageSize()] = h.GetLimit()
	}
	return r
}
