package cri

import (
	"context"
	"errors"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// apiVersion is what a kubelet calls itself when it asks a runtime for its version, and what it must hear back.
const apiVersion = "0.1.0"

// Info asks for version, status and configuration. A runtime that does not tell its cgroup driver is none
// the worse.
func (e *Engine) Info(ctx context.Context) (runtime.Info, error) {
	v, err := invoke(ctx, e, call{op: "version", what: "ask the runtime for its version"}, e.runtime.Version,
		&cri.VersionRequest{Version: apiVersion})
	if err != nil {
		return runtime.Info{}, err
	}
	if v.GetVersion() != apiVersion {
		return runtime.Info{}, fmt.Errorf("runtime %s speaks to kubelets of version %q, want %q", v.GetRuntimeName(), v.GetVersion(), apiVersion)
	}
	s, err := invoke(ctx, e, call{op: "status", what: "ask the runtime how it is"}, e.runtime.Status, &cri.StatusRequest{})
	if err != nil {
		return runtime.Info{}, err
	}
	c, err := invoke(ctx, e, call{op: "runtime_config", what: "ask the runtime for its configuration"}, e.runtime.RuntimeConfig,
		&cri.RuntimeConfigRequest{})
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return runtime.Info{}, err
	}
	return info(v, s, c), nil
}

func info(v *cri.VersionResponse, s *cri.StatusResponse, c *cri.RuntimeConfigResponse) runtime.Info {
	i := runtime.Info{
		Name: v.GetRuntimeName(), Version: v.GetRuntimeVersion(), CgroupDriver: cgroupDriver(c),
		GroupsPolicy: s.GetFeatures().GetSupplementalGroupsPolicy(),
		Ready:        condition(s.GetStatus(), cri.RuntimeReady),
		Network:      condition(s.GetStatus(), cri.NetworkReady),
	}
	for _, h := range s.GetRuntimeHandlers() {
		i.Handlers = append(i.Handlers, runtime.Handler{
			Name:           h.GetName(),
			UserNamespaces: h.GetFeatures().GetUserNamespaces(), RecursiveRO: h.GetFeatures().GetRecursiveReadOnlyMounts(),
		})
	}
	return i
}

// condition looks for one by its type; a runtime that leaves it out is not in it.
func condition(s *cri.RuntimeStatus, kind string) runtime.Condition {
	for _, c := range s.GetConditions() {
		if c.GetType() == kind {
			return runtime.Condition{OK: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage()}
		}
	}
	return runtime.Condition{Reason: "Unknown", Message: "the runtime does not report " + kind}
}

func cgroupDriver(c *cri.RuntimeConfigResponse) string {
	if c.GetLinux() == nil {
		return ""
	}
	if c.GetLinux().GetCgroupDriver() == cri.CgroupDriver_CGROUPFS {
		return "cgroupfs"
	}
	return "systemd"
}
