package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/eviction/shutdown"
	"github.com/kubeletkit/kubeletkit/eviction/shutdown/logind"
	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/stats"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// guards keep this machine alive: they remove images, rotate logs, and end pods before there is nothing left.
type guards struct {
	images  *imagegc.Collector
	logs    *logs.Rotator
	evictor *eviction.Manager
	down    *shutdown.Manager // nil: pods are not told that the machine goes down
}

// guarded is what the guards look at, and what they act on.
type guarded struct {
	engine  *cri.Engine
	images  *image.Store
	dead    *imagegc.Dead
	figures *stats.Collector
	roster  *syncloop.Roster
	grouped groups
	told    *status.Manager
	changed func() // the node is under pressure, or no more
}

// layout tells whether images lie apart, and with them what containers write.
func (g guarded) layout(ctx context.Context) (eviction.Layout, error) {
	images, written, err := g.figures.Apart(ctx)
	switch {
	case written:
		return eviction.ImagesApart, err
	case images:
		return eviction.Split, err
	}
	return eviction.OneDisk, err
}

func newGuards(b *build, o *options, g guarded, obs func(string) observe.To, log *slog.Logger) guards {
	k := o.kubelet
	images := one(b, imagegc.New, imagegc.Config{
		Images: g.images, Users: g.engine, Disk: g.figures, Node: o.nodeName,
		High: int(value(k.ImageGCHighThresholdPercent)), Low: orNone(int(value(k.ImageGCLowThresholdPercent))),
		MinAge: orNone(k.ImageMinimumGCAge.Duration), MaxAge: k.ImageMaximumGCAge.Duration, Observe: obs("imagegc"),
	})
	rotator := one(b, logs.NewRotator, logs.RotatorConfig{
		Containers: g.engine, Reopen: g.engine, MaxSize: one(b, bytesOf, k.ContainerLogMaxSize), MaxFiles: int(value(k.ContainerLogMaxFiles)),
		Interval: k.ContainerLogMonitorInterval.Duration, Workers: int(value(k.ContainerLogMaxWorkers)), Log: log.With("component", "logs"),
	})
	notifier, err := eviction.CgroupNotifier(g.grouped.all)
	if err != nil {
		log.Warn("memory that runs short is found out every ten seconds only", "err", err)
	}
	evictor := one(b, eviction.New, eviction.Config{
		Source: eviction.FromSummary(g.figures.Glance), Closer: eviction.FromSummary(g.figures.Closely), Pods: g.roster, Thresholds: one(b, thresholds, thresholdsConfig{o, g.grouped.all != "" && g.grouped.enforced}), Node: o.nodeName,
		Dead: g.dead, Images: images, Notifier: notifier, Kill: g.grouped.kill(), Layout: g.layout, Changed: g.changed,
		Transition:    max(k.EvictionPressureTransitionPeriod.Duration, 1), // zero is none
		MaxGrace:      time.Duration(k.EvictionMaxPodGracePeriod) * time.Second,
		NoLocalLimits: !value(k.LocalStorageCapacityIsolation), Observe: obs("eviction"),
	})
	return guards{images, rotator, evictor, one(b, newShutdown, shutdownConfig{o, g, obs("shutdown")})}
}

type shutdownConfig struct {
	o   *options
	g   guarded
	obs observe.To
}

// newShutdown ends pods in good order before the machine goes down, if the configuration gives them time for that.
func newShutdown(c shutdownConfig) (*shutdown.Manager, error) {
	k := c.o.kubelet
	periods := map[int32]time.Duration{}
	for _, p := range k.ShutdownGracePeriodByPodPriority {
		periods[p.Priority] = time.Duration(p.ShutdownGracePeriodSeconds) * time.Second
	}
	if len(periods) == 0 && k.ShutdownGracePeriod.Duration > 0 {
		periods = shutdown.Periods(k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration)
	}
	if len(periods) == 0 {
		return nil, nil
	}
	return shutdown.New(shutdown.Config{
		Notice: logind.Notice{Short: short(c.obs.Logger())}, Pods: leaving{c.g.roster}, Periods: periods, Node: c.o.nodeName, Changed: c.g.changed,
		Flush: c.g.told.Flush, Observe: c.obs,
	})
}

// short says once that the machine does not wait for as long as it should.
func short(log *slog.Logger) func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() { log.Warn("not all pods may have ended in order when the machine goes down", "err", err) })
	}
}

// leaving are the pods that a machine waits for before it goes down, also for what they still hold, and until their last
// statuses are on their way.
type leaving struct{ *syncloop.Roster }

// Active are those, too, that only hold something.
func (l leaving) Active() []*v1.Pod { return l.Unsettled() }

// Settled is when the last status was told, too.
func (l leaving) Settled(ctx context.Context, uid types.UID) error {
	if err := l.Roster.Settled(ctx, uid); err != nil {
		return err
	}
	return l.Told(ctx, uid)
}

// admit are the guards' reasons to refuse pods.
func (g guards) admit() []syncloop.Admitter {
	if g.down == nil {
		return []syncloop.Admitter{g.evictor}
	}
	return []syncloop.Admitter{g.evictor, g.down}
}

// up is an error while the machine goes down.
func (g guards) up() error {
	if g.down == nil {
		return nil
	}
	return g.down.Healthy()
}

type thresholdsConfig struct {
	o       *options
	limited bool // pods together may not use more than a certain amount of memory
}

// thresholds are those of the configuration. Where pods have a limit together, it is a limit of memory too.
func thresholds(c thresholdsConfig) ([]eviction.Threshold, error) {
	k := c.o.kubelet
	list, err := eviction.Parse(k.EvictionHard, k.EvictionSoft, k.EvictionSoftGracePeriod, k.EvictionMinimumReclaim)
	if c.limited {
		list = eviction.Allocatable(list)
	}
	return list, err
}

// orNone is what a part takes for none, or for no limit, where zero would mean its default: the configuration has its defaults
// already.
func orNone[T ~int | ~int32 | ~int64](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// bytesOf reads an amount such as 10Mi.
func bytesOf(amount string) (int64, error) {
	q, err := resource.ParseQuantity(amount)
	return q.Value(), err
}

func (g guards) runners() []runner {
	all := []runner{g.images, g.logs, g.evictor}
	if g.down != nil {
		all = append(all, g.down)
	}
	return all
}

// pressure names what the node is short of.
func (g guards) pressure() []v1.NodeConditionType { return g.evictor.Pressure() }
