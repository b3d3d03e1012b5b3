package staticpod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/observe"
)

const (
	defaultRescan = 20 * time.Second
	retryAway     = time.Second // between two looks for a directory that is not there
)

// Config describes a Dir. Path and Node are required.
type Config struct {
	Path string // directory of manifests, or a single one; it need not exist yet
	Node string // name of this node; becomes part of the pods' names

	Rescan  time.Duration // time between two looks without a notification; 0 means 20 s
	Observe observe.To    // logger, events about the node, metrics; zero is silent
}

// Dir is a pod source over a directory or a single file; see the package comment for what it promises.
type Dir struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics

	ran atomic.Bool

	// Of Run alone:
	table   table
	single  bool        // Path is a file
	dir     fs.FileInfo // of the directory as last read; nil: never
	emptied time.Time   // since when it is another, empty one; zero: it is not
	away    string      // why it cannot be read; empty: it can
	sent    []*v1.Pod
	started bool // something was sent
	sure    bool // the set was complete once
}

// NewDir checks the configuration. Nothing is read or watched before Run.
func NewDir(cfg Config) (*Dir, error) {
	if cfg.Path == "" || cfg.Node == "" {
		return nil, errors.New("staticpod: Path and Node are required")
	}
	if len(validation.IsDNS1123Subdomain(strings.ToLower(cfg.Node))) > 0 {
		return nil, fmt.Errorf("staticpod: node name %q is not a DNS name", cfg.Node)
	}
	if cfg.Rescan < 0 {
		return nil, fmt.Errorf("staticpod: Rescan %v must not be negative", cfg.Rescan)
	}
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("staticpod: make %s absolute: %w", cfg.Path, err)
	}
	cfg.Path = path
	cfg.Rescan = cmp.Or(cfg.Rescan, defaultRescan)
	m, err := newMetrics(cfg.Observe)
	if err != nil {
		return nil, fmt.Errorf("staticpod: make metrics: %w", err)
	}
	return &Dir{
		cfg: cfg, log: cfg.Observe.Logger(), metrics: m,
		table: table{node: cfg.Node, settle: settle, entries: map[string]*entry{}},
	}, nil
}

// Run delivers the pods of the directory, each time they change, until ctx ends; then it returns nil. It is
// called once. set is called from the goroutine of Run; the pods are shared and must not be changed.
func (d *Dir) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	if !d.ran.CompareAndSwap(false, true) {
		return fmt.Errorf("staticpod: the Dir of %s ran before; NewDir makes another, which tells of all pods again", d.cfg.Path)
	}
	w := watch{path: d.cfg.Path, log: d.log}
	defer w.close()
	for ctx.Err() == nil {
		w.follow(d.single) // before the look, so that nothing falls between the two
		began := time.Now()
		next, news := d.step(began, w.removals(), set)
		rest := time.Duration(0)
		if !news { // events without meaning, such as those of a log file, get a tenth of a processor at most
			rest = 10 * time.Since(began)
		}
		w.wait(ctx, next, rest)
	}
	return nil
}

// step looks at the whole directory once, and is told which files were removed since the last look. It says when to look again
// at the latest, and whether there were news.
func (d *Dir) step(now time.Time, removed map[string]bool, set func([]*v1.Pod, bool)) (next time.Duration, news bool) {
	paths, err := d.list(now)
	if err != nil {
		d.gone(err)
		if !d.started {
			d.started = true
			set(nil, false)
		}
		return min(retryAway, d.cfg.Rescan), false
	}
	if d.away != "" {
		d.away = ""
		d.log.Info("static pod directory is back", "path", d.cfg.Path)
	}
	d.table.update(paths, removed, !d.single, now)
	entries := d.table.sorted()
	pods := choose(entries, now)
	d.tell(entries, now)

	next, sure := d.cfg.Rescan, true // sure: what is there is known, and not just written
	for _, e := range entries {
		if e.back {
			e.back, next = false, 0
		}
		if d.table.unsure(e, now) {
			next = min(next, max(e.since.Add(d.table.settle).Sub(now), time.Millisecond))
			sure = sure && e.pod != nil
		}
	}
	if d.started && slices.Equal(pods, d.sent) && (d.sure || !sure) {
		return next, false
	}
	d.started, d.sent, d.sure = true, pods, d.sure || sure
	set(slices.Clone(pods), d.sure)
	return next, true
}

// list is what stands in the directory now. An error says that nobody knows.
func (d *Dir) list(now time.Time) ([]string, error) {
	fi, err := os.Stat(d.cfg.Path)
	switch {
	case err == nil && !fi.IsDir() && (d.dir == nil || d.single):
		d.single, d.dir = true, fi
		return []string{d.cfg.Path}, nil
	case err == nil && !fi.IsDir():
		return nil, errors.New("was a directory and is none any more")
	case err == nil:
		return d.listDir(fi, now)
	case d.single && errors.Is(err, fs.ErrNotExist):
		if _, e := os.Stat(filepath.Dir(d.cfg.Path)); e == nil {
			return nil, nil // the one file was removed
		}
	}
	return nil, err
}

func (d *Dir) listDir(fi fs.FileInfo, now time.Time) ([]string, error) {
	entries, err := os.ReadDir(d.cfg.Path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(d.cfg.Path, e.Name()))
		}
	}
	d.single = false
	if d.dir == nil || os.SameFile(d.dir, fi) || len(paths) > 0 || len(d.sent) == 0 {
		d.dir, d.emptied = fi, time.Time{}
		return paths, nil
	}
	// Another directory stands in its place, and it is empty: is what is mounted there missing?
	if device(fi) != device(d.dir) {
		return nil, errors.New("is empty and on another file system than before; is a mount missing?")
	}
	if d.emptied.IsZero() {
		d.emptied = now
	}
	if now.Sub(d.emptied) < d.cfg.Rescan {
		return nil, errors.New("was replaced by an empty directory; this is believed when it stays so")
	}
	d.dir, d.emptied = fi, time.Time{}
	return nil, nil
}

// gone tells, once, that the directory cannot be read.
func (d *Dir) gone(err error) {
	if d.away == err.Error() {
		return
	}
	d.away = err.Error()
	if d.dir != nil {
		d.log.Error("static pod directory cannot be read; its pods keep running", "path", d.cfg.Path, "err", err)
	} else {
		d.log.Error("static pod directory cannot be read; until it can, nothing on this node is cleaned up", "path", d.cfg.Path, "err", err)
	}
	d.event(d.cfg.Path + ": " + err.Error())
}

// tell logs what is new about the entries: each trouble once, until it is another one.
func (d *Dir) tell(entries []*entry, now time.Time) {
	runs, refused := 0, 0
	for _, e := range entries {
		if e.runs {
			runs++
		}
		for _, w := range e.newest {
			d.log.Warn("static pod manifest is accepted, but look at it", "file", e.path, "warning", w)
		}
		e.newest = nil
		trouble := e.trouble()
		switch {
		case e.state == gone:
		case trouble == "" && e.told != "":
			e.told = ""
			d.log.Info("static pod manifest is good again", "file", e.path)
		case trouble == "":
		default:
			refused++
			if id := trouble + string(e.sum[:]); d.table.settled(e, now) && e.told != id {
				e.told = id
				d.refuse(e, trouble)
			}
		}
	}
	d.metrics.files.Record(float64(runs), "running")
	d.metrics.files.Record(float64(refused), "refused")
}

func (d *Dir) refuse(e *entry, trouble string) {
	if e.runs {
		d.log.Warn("static pod manifest is refused; the pod of its last good version keeps running", "file", e.path, "err", trouble)
	} else {
		d.log.Warn("static pod manifest is refused", "file", e.path, "err", trouble)
	}
	d.event(e.path + ": " + trouble)
}

func (d *Dir) event(message string) {
	d.cfg.Observe.Event(observe.Event{
		About:   observe.Ref{Kind: "Node", Name: d.cfg.Node, UID: d.cfg.Node},
		Warning: true, Reason: "FailedValidation", Message: message,
	})
}
