package main

import (
	"errors"
	"strconv"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// checkKernel refuses a host whose kernel is set up as the configuration says it must not be.
func checkKernel(c *v1beta1.KubeletConfiguration, h host) error {
	var errs []error
	if value(c.FailSwapOn) && swaps(h.read("proc/swaps")) {
		errs = append(errs, errors.New("swap is on, and failSwapOn says that it must not be: turn it off (swapoff -a), or set failSwapOn: false (--fail-swap-on=false)"))
	}
	if value(c.FailCgroupV1) && !h.exists("sys/fs/cgroup/cgroup.controllers") {
		errs = append(errs, errors.New("the host has cgroups of version 1, and failCgroupV1 says that it must not: "+
			"boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1: false (--fail-cgroupv1=false)"))
	}
	return errors.Join(errs...)
}

// swaps tells whether a file like /proc/swaps lists any.
func swaps(text string) bool {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return len(lines) > 1
}

// maxThreads is how many threads there may be, 0 when it cannot be told.
func (h host) maxThreads() (most int64) {
	for _, name := range []string{"proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"} {
		if n, err := strconv.ParseInt(h.read(name), 10, 64); err == nil && (most == 0 || n < most) {
			most = n
		}
	}
	return most
}
