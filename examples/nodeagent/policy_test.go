package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/resource/cgroup"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
)

func TestPolicy(t *testing.T) {
	if got := policy(&kubelet.KubeletConfiguration{}); got != (podruntime.Policy{}) {
		t.Errorf("nothing said: %+v", got)
	}
	all := &kubelet.KubeletConfiguration{
		CPUCFSQuota: new(false), CPUCFSQuotaPeriod: &metav1.Duration{Duration: 5 * time.Millisecond}, SingleProcessOOMKill: new(true),
		MemorySwap: kubelet.MemorySwapConfiguration{SwapBehavior: "LimitedSwap"}, MemoryReservationPolicy: kubelet.TieredReservationMemoryReservationPolicy,
		MemoryThrottlingFactor: new(0.9), PodPidsLimit: new(int64(64)),
	}
	got := policy(all)
	want := podruntime.Policy{NoCPUQuota: true, CPUPeriod: 5000, KillSingly: true, LimitedSwap: true, Reservation: true, Throttle: 0.9}
	if got != want {
		t.Errorf("all said: %+v", got)
	}
	wantPods := cgroup.Config{PodPids: 64, NoQuota: true, Period: 5 * time.Millisecond, Reserve: true, Throttle: 0.9}
	if got := limits(all); !reflect.DeepEqual(got, wantPods) {
		t.Errorf("all said of pods: %+v", got)
	}
}

func TestUnsafeSysctlsAreNamedAtTheStart(t *testing.T) {
	for list, good := range map[string]bool{"kernel.msg* net.core.somaxconn": true, "": true, "net.*.foo": false, "vm.swappiness": false} {
		s, err := sysctls(&kubelet.KubeletConfiguration{AllowedUnsafeSysctls: strings.Fields(list)})
		if (err == nil) != good || err != nil && !strings.HasPrefix(err.Error(), "allowedUnsafeSysctls (--allowed-unsafe-sysctls): unsafe sysctl ") {
			t.Errorf("%q: %v", list, err)
		}
		if s.Kernel == "" {
			t.Error("the kernel is not known")
		}
	}
}

func TestSubIDs(t *testing.T) {
	first, count, err := subIDs("0: kubelet 65536 7208960\n")
	if first != 65536 || count != 7208960 || err != nil {
		t.Errorf("%d, %d, %v", first, count, err)
	}
	for _, bad := range []string{"", "0: kubelet 65536", "0: kubelet 1 2\n1: kubelet 3 4", "0: kubelet x 65536", "0: kubelet 65536 0", "0: kubelet 65536 99999999999"} {
		if _, _, err := subIDs(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}
