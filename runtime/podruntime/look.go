package podruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
)

// Limits of termination messages: what the container wrote, or the end of its log.
const (
	maxMessage  = 4096
	logLines    = 80
	logBytes    = 2048
	looksAtOnce = 4 // containers of one pod inspected at once
)

// Pods lists all pods the engine has, shallowly.
func (r *Runtime) Pods(ctx context.Context) ([]runtime.Pod, error) {
	at := time.Now()
	sandboxes, err := r.cfg.Engine.ListSandboxes(ctx, runtime.Filter{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := r.cfg.Engine.ListContainers(ctx, runtime.Filter{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	pods := map[types.UID]*runtime.Pod{}
	get := func(ref runtime.PodRef) *runtime.Pod {
		p := pods[ref.UID]
		if p == nil {
			p = &runtime.Pod{PodRef: ref, At: at}
			pods[ref.UID] = p
		}
		return p
	}
	for _, s := range sandboxes {
		if s.UID != "" {
			p := get(s.PodRef)
			p.Sandboxes = append(p.Sandboxes, s)
		}
	}
	for _, c := range containers {
		if c.Pod.UID != "" {
			p := get(c.Pod)
			p.Containers = append(p.Containers, c)
		}
	}
	out := make([]runtime.Pod, 0, len(pods))
	for _, p := range pods {
		order(p)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b runtime.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return out, nil
}

// order puts the newest first. Which of two instances of one name is newer their numbers say, not their times: a clock may
// have been set between them.
func order(p *runtime.Pod) {
	slices.SortFunc(p.Sandboxes, func(a, b runtime.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	byTime := func(a, b runtime.Container) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) }
	slices.SortFunc(p.Containers, byTime)
	byNumber := slices.SortedFunc(slices.Values(p.Containers), func(a, b runtime.Container) int {
		return cmp.Or(cmp.Compare(b.Restarts, a.Restarts), byTime(a, b))
	})
	next := map[string]int{} // where to go on looking for instances of a name
	for i := range p.Containers {
		name := p.Containers[i].Name
		at := next[name]
		for byNumber[at].Name != name {
			at++
		}
		p.Containers[i], next[name] = byNumber[at], at+1
	}
}

// Pod looks at one pod completely: termination messages and reasons for waiting included. A pod of which nothing exists is
// empty. Lists say whether what an earlier look showed still holds; the engine is asked for the rest.
func (r *Runtime) Pod(ctx context.Context, uid types.UID) (runtime.Pod, error) {
	p := runtime.Pod{PodRef: runtime.PodRef{UID: uid}, At: time.Now()}
	f := runtime.Filter{Pod: uid}
	var containers []runtime.Container
	var lists errgroup.Group
	lists.Go(func() (err error) { containers, err = r.cfg.Engine.ListContainers(ctx, f); return err })
	sandboxes, err := r.cfg.Engine.ListSandboxes(ctx, f)
	if err := cmp.Or(lists.Wait(), err); err != nil {
		return p, fmt.Errorf("list pod %s: %w", uid, err)
	}
	if err := r.complete(ctx, &p, sandboxes, containers); err != nil {
		return p, fmt.Errorf("look at pod %s: %w", uid, err)
	}
	order(&p)
	if len(p.Sandboxes) > 0 {
		p.PodRef = p.Sandboxes[0].PodRef
		if p.Sandboxes[0].Ready {
			p.IPs = p.Sandboxes[0].IPs
		}
	} else if len(p.Containers) > 0 {
		p.PodRef = p.Containers[0].Pod
	}
	p.Waiting = r.memory.waiting(uid)
	p.Applied, p.Level = r.given(uid)
	return p, nil
}

// complete looks at each sandbox and container, unless an earlier look still holds. What went away between list and look is
// left out.
func (r *Runtime) complete(ctx context.Context, p *runtime.Pod, sandboxes []runtime.Sandbox, containers []runtime.Container) error {
	g := &gallery{at: p.At, sandboxes: map[string]picture[runtime.Sandbox]{}, containers: map[string]picture[runtime.Container]{}}
	var mu sync.Mutex // guards the maps of g
	var looks []func() error
	for i := range sandboxes {
		s := &sandboxes[i]
		if pic, good := r.pictures.sandbox(p.At, s); good {
			g.sandboxes[s.ID] = pic
			continue
		}
		looks = append(looks, func() error {
			seen, err := r.cfg.Engine.Sandbox(ctx, s.ID)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				g.sandboxes[s.ID] = picture[runtime.Sandbox]{seen, p.At, p.At}
			}
			return unlessGone(err)
		})
	}
	for i := range containers {
		c := &containers[i]
		if pic, good := r.pictures.container(p.At, c); good {
			g.containers[c.ID] = pic
			continue
		}
		looks = append(looks, func() error {
			seen, err := r.cfg.Engine.Container(ctx, c.ID)
			if err == nil {
				r.lastWords(&seen) //nolint:contextcheck // the end of a local file
				mu.Lock()
				defer mu.Unlock()
				g.containers[c.ID] = picture[runtime.Container]{seen, p.At, p.At}
			}
			return unlessGone(err)
		})
	}
	if err := each(looks); err != nil {
		return err
	}
	for _, s := range sandboxes {
		if pic, exists := g.sandboxes[s.ID]; exists {
			p.Sandboxes = append(p.Sandboxes, pic.seen)
		}
	}
	for _, c := range containers {
		if pic, exists := g.containers[c.ID]; exists {
			p.Containers = append(p.Containers, pic.seen)
		}
	}
	r.pictures.keep(p.UID, g)
	return nil
}

// each does all of them, a few at once.
func each(all []func() error) error {
	if len(all) == 1 {
		return all[0]()
	}
	var g errgroup.Group
	g.SetLimit(looksAtOnce)
	for _, f := range all {
		g.Go(f)
	}
	return g.Wait()
}

func unlessGone(err error) error {
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	return err
}

// lastWords adds what a container that ended had to say, from the file it was given, else from the end of its log.
func (r *Runtime) lastWords(c *runtime.Container) {
	if c.State != runtime.Exited {
		return
	}
	said := ""
	for _, m := range c.Mounts {
		if path := c.Annotations[runtime.AnnotationTerminationMessagePath]; path != "" && m.ContainerPath == lastWordsPath(path) {
			said = tail(m.HostPath, maxMessage)
		}
	}
	fallback := c.Annotations[runtime.AnnotationTerminationMessagePolicy] == string(v1.TerminationMessageFallbackToLogsOnError)
	if said == "" && fallback && c.ExitCode != 0 && c.Reason != "ContainerCannotRun" && c.LogPath != "" {
		said, _ = logs.LastLines(c.LogPath, logLines, logBytes) // no log, no words
	}
	switch {
	case said == "":
	case c.Message == "":
		c.Message = said
	default:
		c.Message += ": " + said
	}
}

// tail reads the end of a regular file. A container may have put anything in its place: nothing else is opened.
func tail(path string, limit int64) string {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return ""
	} else if info.Size() > limit {
		if _, err := f.Seek(-limit, io.SeekEnd); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return ""
	}
	return string(b)
}

// States shows pods from memory; pleg's cache does.
type States interface {
	Pod(ctx context.Context, uid types.UID, after time.Time) (runtime.Pod, error)
}

// Over gives what s shows the newest reasons for waiting and sizes applied, which are known here before anything in the
// engine changes.
func (r *Runtime) Over(s States) States { return over{r, s} }

type over struct {
	r *Runtime
	s States
}

func (o over) Pod(ctx context.Context, uid types.UID, after time.Time) (runtime.Pod, error) {
	p, err := o.s.Pod(ctx, uid, after)
	p.Waiting = o.r.memory.waiting(uid)
	p.Applied, p.Level = o.r.given(uid)
	return p, err
}

// noLogs says why a container has written nothing, by the pod's status.
func noLogs(pod *v1.Pod, container string) string {
	state := stateOf(pod, container)
	switch {
	case state == nil:
		return "is not available" // as in a pod that was refused
	case state.Terminated != nil:
		return "is terminated"
	case state.Waiting == nil:
		return "is waiting to start - no logs yet"
	case state.Waiting.Reason == "ErrImagePull":
		return "is waiting to start: image can't be pulled"
	case state.Waiting.Reason == "ImagePullBackOff":
		return "is waiting to start: trying and failing to pull image"
	default:
		return "is waiting to start: " + state.Waiting.Reason
	}
}

// stateOf is what the pod's status says of a container; nil: nothing.
func stateOf(pod *v1.Pod, container string) *v1.ContainerState {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if c.Name == container {
			return &c.State
		}
	}
	return nil
}

// waits says that, by the pod's status, a container waits.
func waits(pod *v1.Pod, container string) bool {
	state := stateOf(pod, container)
	return state != nil && state.Waiting != nil
}

// notYet is runtime.ErrNotFound in the kubelet's words, which programs look for.
type notYet string

func (n notYet) Error() string        { return string(n) }
func (n notYet) Is(target error) bool { return target == runtime.ErrNotFound }

// Logs opens the log of a container's newest instance that was started, or of the one before it. While a container waits for
// its restart, the newest instance is the one before.
func (r *Runtime) Logs(ctx context.Context, pod *v1.Pod, container string, previous bool, o logs.Options) (io.ReadCloser, error) {
	seen, err := r.cfg.Engine.ListContainers(ctx, runtime.Filter{Pod: pod.UID})
	if err != nil {
		return nil, fmt.Errorf("list containers of pod %s: %w", refOf(pod), err)
	}
	p := runtime.Pod{Containers: slices.DeleteFunc(seen, func(c runtime.Container) bool { return c.Name != container })}
	order(&p)
	which := 0
	for !previous && which < len(p.Containers) && p.Containers[which].State == runtime.Created {
		which++ // it has written nothing yet
	}
	if previous && (len(p.Containers) == 0 || p.Containers[0].State != runtime.Exited || !waits(pod, container)) {
		which = 1
	}
	if len(p.Containers) <= which {
		if previous {
			return nil, fmt.Errorf("previous terminated container %q in pod %q %w", container, pod.Name, runtime.ErrNotFound)
		}
		return nil, notYet(fmt.Sprintf("container %q in pod %q %s", container, pod.Name, noLogs(pod, container)))
	}
	c, err := r.cfg.Engine.Container(ctx, p.Containers[which].ID)
	if err != nil {
		return nil, fmt.Errorf("look at container %q in pod %q: %w", container, pod.Name, err)
	}
	if o.Follow && o.Done == nil {
		o.Done = func() bool {
			now, err := r.cfg.Engine.Container(ctx, c.ID)
			return errors.Is(err, runtime.ErrNotFound) || err == nil && now.State == runtime.Exited
		}
	}
	return logs.Open(ctx, c.LogPath, o)
}
