package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Config describes a Collector. Every field works at zero.
type Config struct {
	Node    string // name of the node in summaries
	RootDir string // the directory the agent keeps its things in: its file system is the node's; empty means /var/lib/kubelet
	LogRoot string // where logs of pods lie; empty means /var/log/pods

	Engine  runtime.Stats                        // of containers and images; nil: summaries have none
	Pods    func() []*v1.Pod                     // those on this node with their newest status; nil: summaries have none
	Volumes func(uid string) []stats.VolumeStats // of a pod, those Run does not measure; nil: none

	PodsCgroup string                   // cgroup of all pods below the root, "kubepods"; empty: there is none
	Cgroup     func(pod *v1.Pod) string // cgroup of a pod below the root, empty for none; nil: none has one

	Root fs.FS                                // the host's files; nil means those below /
	Disk func(path string) (DiskUsage, error) // figures of the file system a path lies on; nil asks the kernel

	Observe observe.To // logger; zero is silent
}

// DiskUsage of a file system. What a file system does not count is zero: inodes, on some.
type DiskUsage struct {
	Capacity, Free, Available int64 // bytes; Available is what is free for others than root
	Inodes, InodesFree        int64
}

// Collector reads figures.
type Collector struct {
	cfg   Config
	host  bool // Config.Root is this host's
	log   *slog.Logger
	rates rates
	looks singleflight.Group

	mu    sync.Mutex // guards the rest
	rooms map[types.UID]room
	asked time.Time // when the engine was last asked about containers

	machine Machine   // what this host is
	named   time.Time // when that was read
}

// New returns a Collector. It reads nothing yet.
func New(cfg Config) (*Collector, error) {
	cfg.RootDir = cmp.Or(cfg.RootDir, "/var/lib/kubelet")
	cfg.LogRoot = cmp.Or(cfg.LogRoot, "/var/log/pods")
	if !filepath.IsAbs(cfg.RootDir) || !filepath.IsAbs(cfg.LogRoot) {
		return nil, fmt.Errorf("stats: the root directory %q and that of logs %q must be absolute paths", cfg.RootDir, cfg.LogRoot)
	}
	host := cfg.Root == nil
	if host {
		cfg.Root = os.DirFS("/")
	}
	if cfg.Disk == nil {
		cfg.Disk = diskUsage
	}
	return &Collector{cfg: cfg, host: host, log: cfg.Observe.Logger(), rooms: map[types.UID]room{}}, nil
}

// Machine reads what this host has, and every five minutes what it is: its names and those of its system.
func (c *Collector) Machine() (Machine, error) {
	c.mu.Lock()
	m, at := c.machine, c.named
	c.mu.Unlock()
	if at.IsZero() || time.Since(at) >= nameAgain {
		m = identify(c.cfg.Root) // what reads files keeps nobody from the rest
		c.mu.Lock()
		c.machine, c.named = m, time.Now()
		c.mu.Unlock()
	}
	return m, m.measure(c.cfg.Root)
}

const nameAgain = 5 * time.Minute

// Storage is the size in bytes of the file system the root directory lies on, or will lie on once it is made.
func (c *Collector) Storage() (int64, error) {
	u, err := c.rootDisk()
	return u.Capacity, err
}

// ImageDisk is the size of the file system images lie on, and what is available of it, in bytes.
func (c *Collector) ImageDisk(ctx context.Context) (capacity, available int64, err error) {
	if c.cfg.Engine == nil {
		return 0, 0, errors.New("stats: there is no engine to ask where images lie")
	}
	images, _, err := c.places(ctx)
	if err != nil {
		return 0, 0, err
	}
	u, err := c.cfg.Disk(images.Mountpoint)
	return u.Capacity, u.Available, err
}

// places asks the engine where images lie, and where containers write.
func (c *Collector) places(ctx context.Context) (images, written *runtime.FSUsage, err error) {
	used, err := c.cfg.Engine.ImageFS(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("ask where images lie: %w", err)
	}
	if images, written = placesOf(used); images == nil {
		err = errors.New("the container runtime does not say where images lie")
	}
	return images, written, err
}

// Apart says whether images, and what containers write, lie on other file systems than the root directory. It is told by devices,
// so that one that is mounted at two places is one.
func (c *Collector) Apart(ctx context.Context) (images, written bool, err error) {
	if c.cfg.Engine == nil {
		return false, false, nil
	}
	i, w, err := c.places(ctx)
	if err != nil {
		return false, false, err
	}
	if images, err = c.apart(i.Mountpoint); err != nil || w == i {
		return images, images, err
	}
	written, err = c.apart(w.Mountpoint)
	if err != nil { // where images lie decides, as where an engine does not tell
		c.log.Warn("it cannot be seen where containers write; they count as beside images", "err", err)
		written = images
	}
	return images, written, nil
}

// apart says that a directory lies on another file system than the root directory.
func (c *Collector) apart(dir string) (bool, error) {
	there, err := os.Stat(dir)
	if err != nil {
		return false, fmt.Errorf("look where the container runtime keeps things: %w", err)
	}
	root, err := os.Stat(c.cfg.RootDir)
	if err != nil {
		return false, fmt.Errorf("look at the root directory: %w", err)
	}
	return fileOf(there).device != fileOf(root).device, nil
}

// rootDisk looks at the root directory, or as long as that does not exist at what it will be made in.
func (c *Collector) rootDisk() (DiskUsage, error) {
	for dir := c.cfg.RootDir; ; dir = filepath.Dir(dir) {
		u, err := c.cfg.Disk(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return u, err
		}
	}
}

// Summary is the node and its pods in the form of the kubelet's /stats/summary. fresh moves the rates of CPU use on to
// now; without it they move only when they are ten seconds old, so that many who ask do not make them nervous.
func (c *Collector) Summary(ctx context.Context, fresh bool) (*stats.Summary, error) {
	if fresh {
		return c.shared(ctx, "fresh", detail{fresh: true, groups: true})
	}
	return c.shared(ctx, "read", detail{groups: true, rest: true})
}

// Glance is a fresh Summary for who looks again and again: of pods it has what [Collector.Run] has measured, and what the
// engine says of containers only while one of them may use so much of the disk and no more, else once a minute, so that rates
// of CPU use are never of long ago. An engine has to ask the process of every container, and what cgroups say takes more to
// read than all the rest. When the engine does not answer it says what can be known without: a node that runs out of memory
// is guarded when its engine hangs for lack of it, too. Like Closely it has all pods.
func (c *Collector) Glance(ctx context.Context, _ bool) (*stats.Summary, error) {
	return c.shared(ctx, "glance", detail{fresh: true, glance: true, all: true})
}

// Closely is a fresh Summary for who chooses among pods. It has those, too, of which no container runs, such as one that waits for
// its image or after a crash: they use what their volumes and logs take, which is not the same as that nothing is known of them.
func (c *Collector) Closely(ctx context.Context, _ bool) (*stats.Summary, error) {
	return c.shared(ctx, "closely", detail{fresh: true, groups: true, all: true})
}

// detail is how closely to look.
type detail struct {
	fresh  bool // rates of CPU use move on
	glance bool // at containers only where it has to be
	all    bool // at pods of which no container runs, too
	groups bool // at cgroups of pods: memory and threads
	rest   bool // there also at limits, pressure, network, which nothing depends on
}

// shared has one look for all who want the same at a time.
func (c *Collector) shared(ctx context.Context, key string, d detail) (*stats.Summary, error) {
	shared := c.looks.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
		defer cancel()
		return c.look(ctx, d)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-shared:
		s, _ := r.Val.(*stats.Summary)
		return s, r.Err
	}
}

const lookWithin = 30 * time.Second // one look; those who asked may have gone away before

func (c *Collector) look(ctx context.Context, d detail) (*stats.Summary, error) {
	now := time.Now()
	g := newGroups(c.cfg.Root, c.host)
	node, err := c.node(g, now, d.fresh)
	if err != nil {
		return nil, fmt.Errorf("figures of the node: %w", err)
	}
	s := &stats.Summary{Node: node, Pods: []stats.PodStats{}}
	if c.cfg.Engine == nil {
		return s, nil
	}
	err = c.ask(ctx, g, now, s, d)
	switch {
	case err != nil && !d.glance:
		return nil, err
	case err != nil:
		c.log.Debug("the engine says nothing; the kernel has to do", "err", err)
		s.Pods = c.unasked(g, now, s.Node.Fs)
	}
	withoutSwap(s)
	c.rates.forget(now)
	return s, nil
}

const glanceWithin = 5 * time.Second // the engine answers whoever guards the node, or does without it

// ask adds what the engine knows.
func (c *Collector) ask(ctx context.Context, g *groups, now time.Time, s *stats.Summary, d detail) error {
	if d.glance {
		own, cancel := context.WithTimeout(ctx, glanceWithin)
		defer cancel()
		ctx = own
	}
	disk, err := c.images(ctx, now, &s.Node)
	if err != nil {
		return fmt.Errorf("figures of images: %w", err)
	}
	if s.Pods, err = c.pods(ctx, g, now, disk, s.Node.Fs, d); err != nil {
		return fmt.Errorf("figures of pods: %w", err)
	}
	return nil
}
