package cri

import (
	"context"
	"errors"
	"math"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ContainerStats are the runtime's figures of running containers. One that went away meanwhile is left out.
func (e *Engine) ContainerStats(ctx context.Context, f runtime.Filter) ([]runtime.Usage, error) {
	q := &cri.ListContainerStatsRequest{Filter: &cri.ContainerStatsFilter{LabelSelector: selector(f)}}
	a, err := invoke(ctx, e, call{op: "list_container_stats", what: "list container stats"}, e.runtime.ListContainerStats, q)
	if err != nil {
		return nil, err
	}
	var list []runtime.Usage
	for _, s := range a.GetStats() {
		u := usage(s)
		u.Sandbox, err = e.owner(ctx, u.Container)
		if errors.Is(err, runtime.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, nil
}

// ImageFS is where images lie, and where containers write, and how much they take.
func (e *Engine) ImageFS(ctx context.Context) ([]runtime.FSUsage, error) {
	a, err := invoke(ctx, e, call{op: "image_fs_info", what: "ask for the image file system"}, e.image.ImageFsInfo, &cri.ImageFsInfoRequest{})
	if err != nil {
		return nil, err
	}
	var list []runtime.FSUsage
	for _, fs := range a.GetImageFilesystems() {
		list = append(list, fsUsage(fs))
	}
	for _, fs := range a.GetContainerFilesystems() {
		u := fsUsage(fs)
		u.Written = true
		list = append(list, u)
	}
	return list, nil
}

func fsUsage(fs *cri.FilesystemUsage) runtime.FSUsage {
	return runtime.FSUsage{Mountpoint: fs.GetFsId().GetMountpoint(), Used: figure(fs.GetUsedBytes()), Inodes: figure(fs.GetInodesUsed())}
}

func usage(s *cri.ContainerStats) runtime.Usage {
	return runtime.Usage{
		Container:  s.GetAttributes().GetId(),
		At:         at(s.GetCpu().GetTimestamp()),
		CPUNanos:   figure(s.GetCpu().GetUsageCoreNanoSeconds()),
		WorkingSet: figure(s.GetMemory().GetWorkingSetBytes()),
		RootFS:     figure(s.GetWritableLayer().GetUsedBytes()),

		Memory:          figure(s.GetMemory().GetUsageBytes()),
		RSS:             figure(s.GetMemory().GetRssBytes()),
		PageFaults:      figure(s.GetMemory().GetPageFaults()),
		MajorPageFaults: figure(s.GetMemory().GetMajorPageFaults()),
		RootFSInodes:    figure(s.GetWritableLayer().GetInodesUsed()),

		Swap: figure(s.GetSwap().GetSwapUsageBytes()), SwapAvailable: figure(s.GetSwap().GetSwapAvailableBytes()),
		SwapKnown: s.GetSwap().GetSwapUsageBytes() != nil,
	}
}

func figure(v *cri.UInt64Value) int64 { return int64(min(v.GetValue(), math.MaxInt64)) }
