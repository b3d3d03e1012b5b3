package stats

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// room is what files of a pod take up: its volumes and logs, and what the agent keeps for it.
type room struct {
	pod     runtime.PodRef
	at      time.Time
	volumes []stats.VolumeStats
	logs    map[string]amount // by container
	other   amount            // hosts file, last words, files beside the logs of containers
	local   amount            // of those volumes that are on the node's disk
}

// amount of a file system.
type amount struct{ bytes, inodes int64 }

func (a amount) plus(b amount) amount { return amount{a.bytes + b.bytes, a.inodes + b.inodes} }

const (
	measureEvery = time.Minute
	measureNew   = 10 * time.Second     // pods that were not there the last time
	idle         = 9                    // times as long as it measured does Run rest: it takes a tenth of the time at most
	stretch      = 5 * time.Millisecond // of work after which it does so
)

// Run keeps up to date what volumes and logs of pods take up. It goes through all pods each minute, and through new ones each
// ten seconds, one after another and with rests, and returns nil once ctx has ended. Without it, or before it came to a pod,
// summaries say nothing of that.
func (c *Collector) Run(ctx context.Context) error {
	tick := time.NewTicker(measureNew)
	defer tick.Stop()
	var last time.Time // that all were gone through
	for {
		all := time.Since(last) >= measureEvery
		if all {
			last = time.Now()
		}
		c.measureAll(ctx, all)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// measureAll goes through all pods, or through those that it never came to.
func (c *Collector) measureAll(ctx context.Context, all bool) {
	if c.cfg.Pods == nil {
		return
	}
	pods := c.cfg.Pods()
	here := make(map[types.UID]bool, len(pods))
	w := walker{ctx: ctx, began: time.Now()}
	for _, p := range pods {
		here[p.UID] = true
		if _, known := c.room(p.UID); known && !all {
			continue
		}
		r, err := c.measure(&w, p)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.log.Debug("not all files of a pod could be measured", "pod", p.Name, "namespace", p.Namespace, "uid", p.UID, "err", err)
		}
		c.mu.Lock()
		c.rooms[p.UID] = r
		c.mu.Unlock()
		w.pause()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.rooms, func(uid types.UID, _ room) bool { return !here[uid] })
}

// room of a pod; false before it was measured.
func (c *Collector) room(uid types.UID) (room, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.rooms[uid]
	return r, ok
}

// LogSizes calls f for each container of whose logs Run knows what they take up, in bytes. It looks at nothing, and f must not
// call the Collector.
func (c *Collector) LogSizes(f func(pod runtime.PodRef, container string, bytes int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rooms {
		for container, used := range r.logs {
			f(r.pod, container, used.bytes)
		}
	}
}

// measure looks at all files of a pod. What cannot be measured counts as nothing.
func (c *Collector) measure(w *walker, p *v1.Pod) (room, error) {
	r := room{pod: runtime.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, at: time.Now(), logs: map[string]amount{}}
	var errs []error
	dir := filepath.Join(c.cfg.RootDir, "pods", string(p.UID))
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		kind, local := kindOf(v)
		if kind == "" {
			continue
		}
		path := filepath.Join(dir, "volumes", "kubernetes.io~"+kind, v.Name)
		used, disk, err := c.volume(w, path)
		if errors.Is(err, fs.ErrNotExist) { // not in place yet, or not any more
			continue
		}
		errs = append(errs, err)
		figures := fsStats(metav1.NewTime(r.at), disk, used.bytes)
		figures.InodesUsed = bytes(used.inodes)
		r.volumes = append(r.volumes, stats.VolumeStats{Name: v.Name, FsStats: *figures})
		if local {
			r.local = r.local.plus(used)
		}
	}
	for _, own := range []string{"etc-hosts", "containers"} {
		used, err := w.tree(filepath.Join(dir, own))
		r.other = r.other.plus(used)
		errs = append(errs, ignoreGone(err))
	}
	errs = append(errs, r.measureLogs(w, filepath.Join(c.cfg.LogRoot, p.Namespace+"_"+p.Name+"_"+string(p.UID))))
	return r, errors.Join(errs...)
}

// measureLogs looks at the logs of a pod, a directory for each container.
func (r *room) measureLogs(w *walker, dir string) error {
	entries, err := os.ReadDir(dir)
	errs := []error{ignoreGone(err)}
	for _, e := range entries {
		used, err := w.tree(filepath.Join(dir, e.Name()))
		errs = append(errs, ignoreGone(err))
		if e.IsDir() {
			r.logs[e.Name()] = used
		} else {
			r.other = r.other.plus(used)
		}
	}
	return errors.Join(errs...)
}

// volume measures one: by its file system if it has one of its own, as those in memory do, else by its files.
func (c *Collector) volume(w *walker, path string) (amount, DiskUsage, error) {
	own, err := mountPoint(path)
	if err != nil {
		return amount{}, DiskUsage{}, err
	}
	disk, err := c.cfg.Disk(path)
	if err != nil {
		return amount{}, disk, err
	}
	if own {
		return amount{disk.Capacity - disk.Free, disk.Inodes - disk.InodesFree}, disk, nil
	}
	used, err := w.tree(path)
	return used, disk, err
}

// kindOf is the directory volumes of a kind lie in, empty for those that are measured by others; local are those whose files
// count as storage of the pod.
func kindOf(v *v1.Volume) (kind string, local bool) {
	switch {
	case v.EmptyDir != nil:
		return "empty-dir", v.EmptyDir.Medium == v1.StorageMediumDefault
	case v.ConfigMap != nil:
		return "configmap", true
	case v.GitRepo != nil:
		return "git-repo", true
	case v.Secret != nil:
		return "secret", false
	case v.Projected != nil:
		return "projected", false
	case v.DownwardAPI != nil:
		return "downward-api", false
	}
	return "", false
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// walker sums up files and rests in between.
type walker struct {
	ctx   context.Context
	began time.Time // of the work since the last rest
}

// pause rests if there was work enough for a rest: to sleep and to be woken is work, too.
func (w *walker) pause() {
	if time.Since(w.began) > stretch {
		w.rest()
	}
}

// rest sleeps for a multiple of the time it worked.
func (w *walker) rest() {
	timer := time.NewTimer(idle * time.Since(w.began))
	defer timer.Stop()
	select {
	case <-w.ctx.Done():
	case <-timer.C:
	}
	w.began = time.Now()
}

// tree is what a file or directory and all below it take up on its file system. One with several names counts once, and what
// goes while it is looked at counts as nothing.
func (w *walker) tree(root string) (amount, error) {
	var sum amount
	var top *file
	seen := map[uint64]bool{} // files with several names
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if path == root {
				return err
			}
			return ignoreGone(err)
		}
		if err := w.ctx.Err(); err != nil {
			return err
		}
		w.pause()
		info, err := e.Info()
		if err != nil {
			return ignoreGone(err)
		}
		f := fileOf(info)
		if top == nil {
			top = &f
		}
		if f.device != top.device { // something is mounted there
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if f.links > 1 && !e.IsDir() {
			if seen[f.inode] {
				return nil
			}
			seen[f.inode] = true
		}
		sum = sum.plus(amount{f.bytes, 1})
		return nil
	})
	return sum, err
}

// file is what the kernel says of one.
type file struct {
	device, inode, links uint64
	bytes                int64 // on the disk
}

// mountPoint says that a directory has another file system than what it is in.
func mountPoint(dir string) (bool, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return false, err
	}
	above, err := os.Lstat(filepath.Dir(dir))
	if err != nil {
		return false, err
	}
	return fileOf(info).device != fileOf(above).device, nil
}
