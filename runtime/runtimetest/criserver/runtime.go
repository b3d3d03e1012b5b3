package criserver

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// runtimeService is the half of CRI about sandboxes and containers.
type runtimeService struct {
	cri.UnimplementedRuntimeServiceServer
	engine *runtimetest.Engine
}

func (s *runtimeService) Version(ctx context.Context, q *cri.VersionRequest) (*cri.VersionResponse, error) {
	i, err := s.engine.Info(ctx)
	return answer(&cri.VersionResponse{
		Version: q.GetVersion(), RuntimeName: i.Name, RuntimeVersion: i.Version, RuntimeApiVersion: "v1",
	}, err)
}

func (s *runtimeService) Status(ctx context.Context, _ *cri.StatusRequest) (*cri.StatusResponse, error) {
	i, err := s.engine.Info(ctx)
	a := &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		condition(cri.RuntimeReady, i.Ready), condition(cri.NetworkReady, i.Network),
	}}, Features: &cri.RuntimeFeatures{SupplementalGroupsPolicy: i.GroupsPolicy}}
	for _, h := range i.Handlers {
		a.RuntimeHandlers = append(a.RuntimeHandlers, &cri.RuntimeHandler{Name: h.Name, Features: &cri.RuntimeHandlerFeatures{
			UserNamespaces: h.UserNamespaces, RecursiveReadOnlyMounts: h.RecursiveRO,
		}})
	}
	return answer(a, err)
}

func condition(kind string, c runtime.Condition) *cri.RuntimeCondition {
	return &cri.RuntimeCondition{Type: kind, Status: c.OK, Reason: c.Reason, Message: c.Message}
}

func (s *runtimeService) RuntimeConfig(ctx context.Context, _ *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	i, err := s.engine.Info(ctx)
	drivers := map[string]cri.CgroupDriver{"systemd": cri.CgroupDriver_SYSTEMD, "cgroupfs": cri.CgroupDriver_CGROUPFS}
	d, ok := drivers[i.CgroupDriver]
	if err == nil && !ok {
		err = errors.ErrUnsupported
	}
	return answer(&cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: d}}, err)
}

func (s *runtimeService) RunPodSandbox(ctx context.Context, q *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	c := sandboxConfig(q.GetConfig())
	c.Handler = q.GetRuntimeHandler()
	id, err := s.engine.RunSandbox(ctx, c)
	return answer(&cri.RunPodSandboxResponse{PodSandboxId: id}, err)
}

func (s *runtimeService) UpdatePodSandboxResources(
	ctx context.Context, q *cri.UpdatePodSandboxResourcesRequest,
) (*cri.UpdatePodSandboxResourcesResponse, error) {
	err := s.engine.UpdateSandbox(ctx, q.GetPodSandboxId(), resources(q.GetResources()), resources(q.GetOverhead()))
	return answer(&cri.UpdatePodSandboxResourcesResponse{}, err)
}

func (s *runtimeService) StopPodSandbox(ctx context.Context, q *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	return answer(&cri.StopPodSandboxResponse{}, s.engine.StopSandbox(ctx, q.GetPodSandboxId()))
}

func (s *runtimeService) RemovePodSandbox(ctx context.Context, q *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	return answer(&cri.RemovePodSandboxResponse{}, s.engine.RemoveSandbox(ctx, q.GetPodSandboxId()))
}

func (s *runtimeService) PodSandboxStatus(ctx context.Context, q *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	b, err := s.engine.Sandbox(ctx, q.GetPodSandboxId())
	return answer(&cri.PodSandboxStatusResponse{Status: sandboxStatus(b)}, err)
}

func (s *runtimeService) ListPodSandbox(ctx context.Context, q *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	f := q.GetFilter()
	list, err := s.engine.ListSandboxes(ctx, filter(f.GetLabelSelector(), f.GetState() != nil))
	a := &cri.ListPodSandboxResponse{}
	for _, b := range list {
		if f.GetId() == "" || f.GetId() == b.ID {
			a.Items = append(a.Items, listedSandbox(b))
		}
	}
	return answer(a, err)
}

// StreamPodSandboxes answers with one at a time.
func (s *runtimeService) StreamPodSandboxes(q *cri.StreamPodSandboxesRequest, to cri.RuntimeService_StreamPodSandboxesServer) error {
	a, err := s.ListPodSandbox(to.Context(), &cri.ListPodSandboxRequest{Filter: q.GetFilter()})
	for _, b := range a.GetItems() {
		if err == nil {
			err = to.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: []*cri.PodSandbox{b}})
		}
	}
	return err
}

func (s *runtimeService) CreateContainer(ctx context.Context, q *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	id, err := s.engine.CreateContainer(ctx, q.GetPodSandboxId(), containerConfig(q.GetConfig(), q.GetSandboxConfig()))
	return answer(&cri.CreateContainerResponse{ContainerId: id}, err)
}

func (s *runtimeService) StartContainer(ctx context.Context, q *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	return answer(&cri.StartContainerResponse{}, s.engine.StartContainer(ctx, q.GetContainerId()))
}

func (s *runtimeService) UpdateContainerResources(
	ctx context.Context, q *cri.UpdateContainerResourcesRequest,
) (*cri.UpdateContainerResourcesResponse, error) {
	return answer(&cri.UpdateContainerResourcesResponse{}, s.engine.UpdateContainer(ctx, q.GetContainerId(), resources(q.GetLinux())))
}

func (s *runtimeService) StopContainer(ctx context.Context, q *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	grace := time.Duration(q.GetTimeout()) * time.Second
	return answer(&cri.StopContainerResponse{}, s.engine.StopContainer(ctx, q.GetContainerId(), grace))
}

func (s *runtimeService) RemoveContainer(ctx context.Context, q *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	return answer(&cri.RemoveContainerResponse{}, s.engine.RemoveContainer(ctx, q.GetContainerId()))
}

func (s *runtimeService) ListContainers(ctx context.Context, q *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f := q.GetFilter()
	list, err := s.engine.ListContainers(ctx, filter(f.GetLabelSelector(), f.GetState() != nil))
	a := &cri.ListContainersResponse{}
	for _, c := range list {
		if (f.GetId() == "" || f.GetId() == c.ID) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.SandboxID) {
			a.Containers = append(a.Containers, listedContainer(c))
		}
	}
	return answer(a, err)
}

// StreamContainers answers with one at a time.
func (s *runtimeService) StreamContainers(q *cri.StreamContainersRequest, to cri.RuntimeService_StreamContainersServer) error {
	a, err := s.ListContainers(to.Context(), &cri.ListContainersRequest{Filter: q.GetFilter()})
	for _, c := range a.GetContainers() {
		if err == nil {
			err = to.Send(&cri.StreamContainersResponse{Containers: []*cri.Container{c}})
		}
	}
	return err
}

// filter knows the labels and states an engine asks for: a pod's UID, ready or running.
func filter(labels map[string]string, onlyAlive bool) runtime.Filter {
	return runtime.Filter{Pod: types.UID(labels[runtime.LabelPodUID]), OnlyAlive: onlyAlive}
}

func (s *runtimeService) ContainerStatus(ctx context.Context, q *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	c, err := s.engine.Container(ctx, q.GetContainerId())
	return answer(&cri.ContainerStatusResponse{Status: containerStatus(c)}, err)
}

func (s *runtimeService) ReopenContainerLog(ctx context.Context, q *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	return answer(&cri.ReopenContainerLogResponse{}, s.engine.ReopenLog(ctx, q.GetContainerId()))
}

func (s *runtimeService) ExecSync(ctx context.Context, q *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	if t := q.GetTimeout(); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(t)*time.Second)
		defer cancel()
	}
	r, err := s.engine.Exec(ctx, q.GetContainerId(), q.GetCmd())
	return answer(&cri.ExecSyncResponse{ExitCode: int32(r.Code), Stdout: r.Output}, err)
}

func (s *runtimeService) ListContainerStats(ctx context.Context, q *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	f := filter(q.GetFilter().GetLabelSelector(), false)
	list, err := s.engine.ContainerStats(ctx, f)
	if err != nil {
		return answer(&cri.ListContainerStatsResponse{}, err)
	}
	containers, err := s.engine.ListContainers(ctx, f)
	attributes := make(map[string]*cri.ContainerAttributes, len(containers))
	for _, c := range containers {
		attributes[c.ID] = &cri.ContainerAttributes{
			Id: c.ID, Metadata: &cri.ContainerMetadata{Name: c.Name, Attempt: uint32(c.Restarts)}, Labels: c.Labels, Annotations: c.Annotations,
		}
	}
	a := &cri.ListContainerStatsResponse{}
	for _, u := range list {
		if attributes[u.Container] == nil { // it went meanwhile
			continue
		}
		a.Stats = append(a.Stats, &cri.ContainerStats{
			Attributes:    attributes[u.Container],
			Cpu:           &cri.CpuUsage{Timestamp: u.At.UnixNano(), UsageCoreNanoSeconds: figure(u.CPUNanos)},
			Memory:        &cri.MemoryUsage{Timestamp: u.At.UnixNano(), WorkingSetBytes: figure(u.WorkingSet)},
			WritableLayer: &cri.FilesystemUsage{Timestamp: u.At.UnixNano(), UsedBytes: figure(u.RootFS)},
		})
	}
	return answer(a, err)
}

func (s *runtimeService) GetContainerEvents(_ *cri.GetEventsRequest, stream cri.RuntimeService_GetContainerEventsServer) error {
	var broken error
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	err := s.engine.Events(ctx, func(e runtime.Event) {
		if broken == nil {
			broken = stream.Send(event(e))
		}
		if broken != nil {
			cancel()
		}
	})
	_, err = answer(struct{}{}, errors.Join(err, broken))
	return err
}

func event(e runtime.Event) *cri.ContainerEventResponse {
	kind := cri.ContainerEventType_CONTAINER_STARTED_EVENT // any but the last: what it is, a look says
	if e.Gone {
		kind = cri.ContainerEventType_CONTAINER_DELETED_EVENT
	}
	return &cri.ContainerEventResponse{
		ContainerId: e.Container, ContainerEventType: kind, CreatedAt: e.At.UnixNano(),
		PodSandboxStatus: &cri.PodSandboxStatus{Metadata: metadata(e.Pod, 0)},
	}
}
