package main

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/stats"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// guards keep this machine alive: they remove images, rotate logs, and end pods before there is nothing left.
type guards struct {
	images  *imagegc.Collector
	logs    *logs.Rotator
	evictor *eviction.Manager
}

// guarded is what the guards look at, and what they act on.
type guarded struct {
	engine  *cri.Engine
	images  *image.Store
	dead    *imagegc.Dead
	figures *stats.Collector
	roster  *syncloop.Roster
	changed func() // the node is under pressure, or no more
}

// layout tells whether images lie apart.
func (g guarded) layout(ctx context.Context) (eviction.Layout, error) {
	apart, err := g.figures.ImagesApart(ctx)
	if apart {
		return eviction.ImagesApart, err
	}
	return eviction.OneDisk, err
}

func newGuards(b *build, o *options, g guarded, obs func(string) observe.To, log *slog.Logger) guards {
	k := o.kubelet
	images := one(b, imagegc.New, imagegc.Config{
		Images: g.images, Users: g.engine, Disk: g.figures, Node: o.nodeName,
		High: int(value(k.ImageGCHighThresholdPercent)), Low: int(value(k.ImageGCLowThresholdPercent)),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration, Observe: obs("imagegc"),
	})
	rotator := one(b, logs.NewRotator, logs.RotatorConfig{
		Containers: g.engine, Reopen: g.engine, MaxSize: one(b, bytesOf, k.ContainerLogMaxSize), MaxFiles: int(value(k.ContainerLogMaxFiles)),
		Interval: k.ContainerLogMonitorInterval.Duration, Workers: int(value(k.ContainerLogMaxWorkers)), Log: log.With("component", "logs"),
	})
	notifier, err := eviction.CgroupNotifier("")
	if err != nil {
		log.Warn("memory that runs short is found out every ten seconds only", "err", err)
	}
	evictor := one(b, eviction.New, eviction.Config{
		Source: eviction.FromSummary(g.figures.Summary), Pods: g.roster, Thresholds: one(b, thresholds, o), Node: o.nodeName,
		Dead: g.dead, Images: images, Notifier: notifier, Layout: g.layout, Changed: g.changed,
		Transition: k.EvictionPressureTransitionPeriod.Duration, MaxGrace: time.Duration(k.EvictionMaxPodGracePeriod) * time.Second, Observe: obs("eviction"),
	})
	return guards{images, rotator, evictor}
}

func thresholds(o *options) ([]eviction.Threshold, error) {
	k := o.kubelet
	return eviction.Parse(k.EvictionHard, k.EvictionSoft, k.EvictionSoftGracePeriod, k.EvictionMinimumReclaim)
}

// bytesOf reads an amount such as 10Mi.
func bytesOf(amount string) (int64, error) {
	q, err := resource.ParseQuantity(amount)
	return q.Value(), err
}

func (g guards) runners() []runner { return []runner{g.images, g.logs, g.evictor} }

// pressure names what the node is short of.
func (g guards) pressure() []v1.NodeConditionType { return g.evictor.Pressure() }
