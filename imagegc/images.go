package imagegc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Images shows and removes images. An engine does, and runtime/image.Store does while containers are being started: it
// answers runtime.ErrInUse for an image that is about to be used, which then stays. One that is gone is no error.
type Images interface {
	ListImages(ctx context.Context) ([]runtime.Image, error)
	RemoveImage(ctx context.Context, id string) error
}

// Users shows who uses images: all containers, in whatever state. An engine does.
type Users interface {
	ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error)
	Container(ctx context.Context, id string) (runtime.Container, error)
}

// Disk measures the file system images lie on, in bytes. stats.Collector does.
type Disk interface {
	ImageDisk(ctx context.Context) (capacity, available int64, err error)
}

// Config describes a Collector. Images, Users and Disk are required; every other field works at zero.
type Config struct {
	Images Images
	Users  Users
	Disk   Disk

	Node string // name of the node, for events
	High int    // collect when so many percent of the disk are used; 0: 85; 100 with a zero MaxAge: only Reclaim does
	Low  int    // collect until so many are used; 0: 80; negative: until nothing is left that may go

	MinAge   time.Duration // an image stays for so long after it was first seen; 0: two minutes; negative: not at all
	MaxAge   time.Duration // an image that nobody used for longer goes, however much room there is; 0: none does
	Interval time.Duration // time between two rounds; 0: five minutes

	Observe observe.To // logger, events, metrics; zero is silent
}

// Collector removes images. All methods are safe for concurrent use; rounds come one after another.
type Collector struct {
	cfg     Config
	log     *slog.Logger
	removed observe.Metric
	turn    chan struct{} // who sends has it, and with it memory
	memory  memory
}

// New makes a Collector at rest.
func New(cfg Config) (*Collector, error) {
	if cfg.Images == nil || cfg.Users == nil || cfg.Disk == nil {
		return nil, errors.New("imagegc: Images, Users and Disk are required")
	}
	cfg.High = cmp.Or(cfg.High, 85)
	cfg.Low = max(cmp.Or(cfg.Low, 80), 0)
	cfg.MinAge = max(cmp.Or(cfg.MinAge, 2*time.Minute), 0)
	cfg.Interval = cmp.Or(cfg.Interval, 5*time.Minute)
	switch {
	case cfg.High < 1 || cfg.High > 100 || cfg.Low >= cfg.High:
		return nil, fmt.Errorf("imagegc: Low (%d) must be below High (%d), and both are percent", cfg.Low, cfg.High)
	case cfg.MaxAge < 0 || cfg.Interval < 0:
		return nil, fmt.Errorf("imagegc: MaxAge %v and Interval %v must not be negative", cfg.MaxAge, cfg.Interval)
	}
	in := cfg.Observe.Instruments()
	removed := in.Counter("kubelet_image_garbage_collected_total", "Images removed, for their age or for space.", "reason")
	return &Collector{cfg: cfg, log: cfg.Observe.Logger(), removed: removed, turn: make(chan struct{}, 1), memory: newMemory()}, in.Err
}

// Run collects now and at each interval. It returns nil once ctx has ended. A round that fails is told of by event from the
// second one in a row: the first may have come before the disk could be measured.
func (c *Collector) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	failed := false // the last round
	for {
		err := c.Collect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			c.log.Warn("image collection failed; next try at the next round", "err", err)
			if failed {
				c.event("ImageGCFailed", err.Error())
			}
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Collect looks once: images unused for longer than MaxAge go, and if then High percent of the disk are used, those unused
// the longest, until Low are. An error says that something could not be removed or that it was not enough.
func (c *Collector) Collect(ctx context.Context) error {
	return c.round(ctx, func(all []sight) error {
		now := time.Now()
		_, left, err := c.remove(ctx, all, c.rules(now, 0))
		if c.cfg.High == 100 && c.cfg.MaxAge == 0 {
			return err
		}
		return errors.Join(err, c.makeRoom(ctx, left, now))
	})
}

// Reclaim removes every image that is not in use, not pinned and older than MinAge. Dead containers hold their images: they
// go first.
func (c *Collector) Reclaim(ctx context.Context) error {
	return c.round(ctx, func(all []sight) error {
		_, _, err := c.remove(ctx, all, c.rules(time.Now(), everything))
		return err
	})
}

// Plan is what Collect would do now: what goes comes first and in that order, then what stays, each with its reason.
func (c *Collector) Plan(ctx context.Context) ([]Step, error) {
	var steps []Step
	err := c.round(ctx, func(all []sight) error {
		d, err := c.measure(ctx)
		if err == nil {
			steps, _ = plan(all, c.rules(time.Now(), c.excess(d)))
		}
		return err
	})
	return steps, err
}

// PlanReclaim is what Reclaim would do now, in the form of Plan.
func (c *Collector) PlanReclaim(ctx context.Context) ([]Step, error) {
	var steps []Step
	err := c.round(ctx, func(all []sight) error {
		steps, _ = plan(all, c.rules(time.Now(), everything))
		return nil
	})
	return steps, err
}

// round waits for its turn and looks at the images before do.
func (c *Collector) round(ctx context.Context, do func([]sight) error) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	all, err := c.look(ctx)
	if err != nil {
		return err
	}
	return do(all)
}

// look sees which images there are and who uses them. Images come first: one that is missing there is not collected, and a
// container made meanwhile is not missing below.
func (c *Collector) look(ctx context.Context) ([]sight, error) {
	images, err := c.cfg.Images.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	containers, err := c.cfg.Users.ListContainers(ctx, runtime.Filter{})
	if err != nil {
		return nil, fmt.Errorf("list the containers that use images: %w", err)
	}
	mounts := make(map[string][]string, len(containers))
	for i := range containers {
		id := containers[i].ID
		if known, ok := c.memory.mounts[id]; ok { // they stay the same as long as a container exists
			mounts[id] = known
			continue
		}
		full, err := c.cfg.Users.Container(ctx, id)
		if errors.Is(err, runtime.ErrNotFound) { // its image is kept once more by the listing
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for images container %s mounts: %w", id, err)
		}
		mounts[id] = mountedImages(full.Mounts)
	}
	c.memory.mounts = mounts
	return c.memory.see(images, containers, time.Now()), nil
}

func mountedImages(mounts []runtime.Mount) []string {
	var out []string
	for _, m := range mounts {
		if m.Image != "" {
			out = append(out, m.Image)
		}
	}
	return out
}

// makeRoom brings the disk below the low mark if it is above the high one. Images share layers, so that removing them frees
// less than they are listed with: it is measured again after those that should have been enough.
func (c *Collector) makeRoom(ctx context.Context, left []sight, now time.Time) error {
	d, err := c.measure(ctx)
	if err != nil {
		return err
	}
	over := c.excess(d)
	if over == 0 {
		return nil
	}
	c.log.Info("the disk of images is filling up", "usedPercent", d.percent(), "goalBytes", over)
	var errs []error
	total := int64(0)
	for over > 0 && len(left) > 0 {
		var freed int64
		freed, left, err = c.remove(ctx, left, c.rules(now, over))
		total += freed
		errs = append(errs, err)
		after, err := c.measure(ctx)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		gained := after.available - d.available
		if gained <= 0 { // the disk does not show it yet: the listed sizes have to do
			gained = freed
		}
		over, d = over-gained, after
	}
	if over > 0 {
		text := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). Failed to free sufficient space by deleting "+
			"unused images (freed %d bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
			d.percent(), inUnits(d.capacity), total) // the kubelet's words, which people look for
		c.event("FreeDiskSpaceFailed", text)
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// remove does what the plan says and returns what that freed by the sizes listed, and the images that may still go. One that
// cannot be removed holds up no other.
func (c *Collector) remove(ctx context.Context, all []sight, r rules) (freed int64, left []sight, err error) {
	steps, left := plan(all, r)
	var errs []error
	for _, s := range steps {
		if !s.Remove {
			continue
		}
		switch err := c.cfg.Images.RemoveImage(ctx, s.ID); {
		case errors.Is(err, runtime.ErrInUse):
			c.log.Debug("an image stays: it is about to be used", "image", s.Name, "id", s.ID)
		case err != nil && !errors.Is(err, runtime.ErrNotFound):
			errs = append(errs, fmt.Errorf("remove image %s (%s): %w", s.Name, s.ID, err))
		default:
			freed += s.Size
			c.removed.Record(1, s.reason)
			c.log.Info("removed an image", "image", s.Name, "id", s.ID, "bytes", s.Size, "why", s.Why)
		}
	}
	return freed, left, errors.Join(errs...)
}

func (c *Collector) rules(now time.Time, over int64) rules {
	return rules{now: now, minAge: c.cfg.MinAge, maxAge: c.cfg.MaxAge, over: over}
}

// disk is how full the file system of images is, in bytes.
type disk struct{ capacity, available int64 }

func (c *Collector) measure(ctx context.Context) (disk, error) {
	capacity, available, err := c.cfg.Disk.ImageDisk(ctx)
	if err != nil {
		return disk{}, fmt.Errorf("measure the disk of images: %w", err)
	}
	if capacity <= 0 {
		err := fmt.Errorf("invalid capacity %d on image filesystem", capacity)
		c.event("InvalidDiskCapacity", err.Error())
		return disk{}, err
	}
	if available > capacity {
		c.log.Info("more is available on the disk of images than fits on it", "available", available, "capacity", capacity)
	}
	return disk{capacity, min(max(available, 0), capacity)}, nil
}

// percent is how much of the disk is used, rounded up.
func (d disk) percent() int { return 100 - int(share(d.available, 100, d.capacity)) }

// inUnits is a number of bytes for people.
func inUnits(bytes int64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	n, units := float64(bytes)/1024, []string{"KiB", "MiB", "GiB", "TiB"}
	for n >= 1024 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", n, units[0])
}

// target is what is available when so many percent are used.
func (d disk) target(percent int) int64 { return share(d.capacity, int64(100-percent), 100) }

// share is a*b/of, for what is not negative and a result that fits.
func share(a, b, of int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(of))
	return int64(q)
}

// excess is how many bytes must be freed; 0 below the high mark.
func (c *Collector) excess(d disk) int64 {
	if d.percent() < c.cfg.High {
		return 0
	}
	return max(d.target(c.cfg.Low)-d.available, 0)
}

func (c *Collector) event(reason, message string) {
	c.cfg.Observe.Event(observe.Event{
		About: observe.Ref{Kind: "Node", Name: c.cfg.Node, UID: c.cfg.Node}, Warning: true, Reason: reason, Message: message,
	})
}
