package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/resource/cgroup"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
)

// policy is what the node decides about resources of containers.
func policy(k *kubelet.KubeletConfiguration) podruntime.Policy {
	p := podruntime.Policy{
		NoCPUQuota: k.CPUCFSQuota != nil && !*k.CPUCFSQuota, KillSingly: value(k.SingleProcessOOMKill),
		LimitedSwap: k.MemorySwap.SwapBehavior == "LimitedSwap",
		Reservation: k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy, Throttle: value(k.MemoryThrottlingFactor),
	}
	if k.CPUCFSQuotaPeriod != nil {
		p.CPUPeriod = int64(k.CPUCFSQuotaPeriod.Duration / time.Microsecond)
	}
	return p
}

// limits are what it decides about the cgroups of pods: a limit holds for a pod as it does for its containers.
func limits(k *kubelet.KubeletConfiguration) cgroup.Config {
	p := policy(k)
	return cgroup.Config{
		PodPids: value(k.PodPidsLimit), NoQuota: p.NoCPUQuota, Period: time.Duration(p.CPUPeriod) * time.Microsecond,
		Reserve: p.Reservation, Throttle: p.Throttle,
	}
}

// sysctls refuses pods that set what they must not on this kernel.
func sysctls(k *kubelet.KubeletConfiguration) (admit.Sysctls, error) {
	s := admit.Sysctls{Unsafe: k.AllowedUnsafeSysctls, Kernel: host("/").read("proc/sys/kernel/osrelease")}
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("allowedUnsafeSysctls (--allowed-unsafe-sysctls): %w; take it out, or name one that a pod has for itself, such as net.core.somaxconn or kernel.msg*", err)
	}
	return s, nil
}

// idsFor is what the IDs for user namespaces are made of.
type idsFor struct {
	ctx context.Context //nolint:containedctx // for one call
	k   *kubelet.KubeletConfiguration
}

// newUsers are the IDs kept for a user kubelet, as getsubids tells; where there is no such user or no such program, all but
// the first.
func newUsers(c idsFor) (podruntime.Users, error) {
	u := podruntime.Users{}
	if c.k.UserNamespaces != nil {
		u.Each = uint32(value(c.k.UserNamespaces.IDsPerPod))
	}
	if _, err := user.Lookup("kubelet"); err != nil {
		return u, nil //nolint:nilerr // nothing is kept for nobody
	}
	program, err := exec.LookPath("getsubids")
	if err != nil {
		return u, nil //nolint:nilerr // so it is without it
	}
	uids, err := exec.CommandContext(c.ctx, program, "kubelet").Output()
	if err != nil {
		return u, fmt.Errorf("ask getsubids for the user IDs kept for pods: %w", err)
	}
	gids, err := exec.CommandContext(c.ctx, program, "-g", "kubelet").Output()
	switch {
	case err != nil:
		return u, fmt.Errorf("ask getsubids for the group IDs kept for pods: %w", err)
	case !bytes.Equal(uids, gids):
		return u, errors.New("the user IDs and the group IDs kept for user kubelet in /etc/subuid and /etc/subgid differ; make them the same")
	}
	u.First, u.Count, err = subIDs(string(uids))
	return u, err
}

// subIDs reads the one line that getsubids answers: 0: kubelet 65536 7208960.
func subIDs(answer string) (first, count uint32, err error) {
	f := strings.Fields(answer)
	if len(f) == 4 {
		a, errA := strconv.ParseUint(f[2], 10, 32)
		b, errB := strconv.ParseUint(f[3], 10, 32)
		if errA == nil && errB == nil && b > 0 {
			return uint32(a), uint32(b), nil
		}
	}
	return 0, 0, fmt.Errorf("getsubids answers %q for user kubelet, which is not one range; give it one line in /etc/subuid and /etc/subgid", answer)
}
