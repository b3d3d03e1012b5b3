package podruntime

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestLookAtKernel(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, row := range map[string]struct {
		root fstest.MapFS
		want Kernel
	}{
		"nothing can be read": {fstest.MapFS{}, Kernel{}},
		"cgroup v1": {fstest.MapFS{
			"sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": file("0"),
			"proc/meminfo": file("MemTotal: 100 kB\nSwapTotal:  4096 kB\n"),
			"sys/kernel/mm/hugepages/hugepages-2048kB/nr":        file("0"),
			"sys/kernel/mm/hugepages/hugepages-1048576kB/nr":     file("0"),
			"sys/kernel/mm/hugepages/hugepages-64kB/nr":          file("0"),
			"sys/kernel/mm/hugepages/hugepages-morekB/nr":        file("0"),
			"sys/fs/selinux/enforce":                             file("1"),
			"sys/devices/system/cpu/cpu0/thermal_throttle/count": file("0"),
			"sys/devices/system/cpu/cpufreq/thermal_throttle/no": file("0"),
		}, Kernel{
			SwapControl: true, Swap: 4 << 20, Hugepages: []string{"1GB", "2MB", "64KB"}, SELinux: true,
			Masked: []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"},
		}},
		"cgroup v1 without control of swap": {fstest.MapFS{"sys/fs/cgroup/memory/memory.limit_in_bytes": file("0")}, Kernel{}},
		"cgroup v2": {fstest.MapFS{
			"sys/fs/cgroup/cgroup.controllers":                         file("memory"),
			"proc/self/cgroup":                                         file("0::/system.slice/agent.service\n"),
			"sys/fs/cgroup/system.slice/agent.service/memory.swap.max": file("max"),
		}, Kernel{CgroupV2: true, SwapControl: true}},
		"cgroup v2 without control of swap": {fstest.MapFS{
			"sys/fs/cgroup/cgroup.controllers":                         file("memory"),
			"proc/self/cgroup":                                         file("0::/other\n"),
			"sys/fs/cgroup/system.slice/agent.service/memory.swap.max": file("max"),
		}, Kernel{CgroupV2: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, LookAtKernel(row.root)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
