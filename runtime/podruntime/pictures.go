package podruntime

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// pictureAge is how long a complete look at a sandbox or container is good while lists show it in the same state. What
	// somebody else changes in it, such as the limits of a running container, is seen no later than that.
	pictureAge = time.Minute

	// lastNews is how long after its end something new may be said of a container: containerd learns that the kernel killed it
	// beside its end, before or after it.
	lastNews = 10 * time.Second
)

// pictures are the newest complete looks at the sandboxes and containers of pods: lists say whether one is still as it was,
// and then the engine is not asked again.
type pictures struct {
	mu   sync.Mutex // guards pods
	pods map[types.UID]*gallery
}

// gallery are those of one pod.
type gallery struct {
	sandboxes  map[string]picture[runtime.Sandbox]
	containers map[string]picture[runtime.Container]
	at         time.Time // just before the look
	changed    time.Time // when this runtime changed something that lists do not show
	made       time.Time // when this runtime made something of the pod last
	unsure     bool      // that failed once, and it may come to be all the same
}

// picture is one look.
type picture[T any] struct {
	seen T
	at   time.Time // just before the look
	from time.Time // just before the first look that showed the same state
}

// good says that a picture is as a look now would be, if lists show the same state.
func (p picture[T]) good(at time.Time, last bool) bool {
	return !p.at.IsZero() && at.Sub(p.at) < pictureAge && (!last || p.at.Sub(p.from) >= lastNews)
}

// sandbox is the picture of one that is in a list of that moment, if it is good. One that is ready but has no address yet may
// get one.
func (p *pictures) sandbox(at time.Time, listed *runtime.Sandbox) (pic picture[runtime.Sandbox], good bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.pods[listed.UID]; g != nil {
		old := g.sandboxes[listed.ID]
		if old.seen.Ready && !listed.Ready { // all that an end changes
			old.seen.Ready, old.seen.IPs, old.seen.NetworkKnown = false, nil, false
		}
		settled := !listed.Ready || len(old.seen.IPs) > 0 || old.seen.HostNetwork
		return old, settled && old.good(at, false) && old.seen.Ready == listed.Ready
	}
	return pic, false
}

// container is the same of a container.
func (p *pictures) container(at time.Time, listed *runtime.Container) (pic picture[runtime.Container], good bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.pods[listed.Pod.UID]; g != nil {
		old := g.containers[listed.ID]
		return old, old.good(at, listed.State == runtime.Exited) && old.seen.State == listed.State && listed.State != runtime.Unknown
	}
	return pic, false
}

// keep takes the pictures of a look at a pod begun at that moment, and forgets what it did not show. A look that is older than
// another one, or than a change, is not kept.
func (p *pictures) keep(uid types.UID, g *gallery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.pods[uid]
	switch {
	case old == nil && len(g.sandboxes)+len(g.containers) == 0:
		return
	case old == nil:
		old = &gallery{}
	case !g.at.After(old.changed) || g.at.Before(old.at):
		return
	case len(g.sandboxes)+len(g.containers) == 0:
		delete(p.pods, uid)
		return
	}
	for id, now := range g.containers {
		if was, known := old.containers[id]; known && was.seen.State == now.seen.State {
			now.from = was.from
			g.containers[id] = now
		}
	}
	g.changed, g.made, g.unsure = old.changed, old.made, old.unsure
	if p.pods == nil {
		p.pods = map[types.UID]*gallery{}
	}
	p.pods[uid] = g
}

// of is what there is of a pod. The caller holds mu.
func (p *pictures) of(uid types.UID) *gallery {
	g := p.pods[uid]
	if g == nil {
		g = &gallery{}
		if p.pods == nil {
			p.pods = map[types.UID]*gallery{}
		}
		p.pods[uid] = g
	}
	return g
}

// makes notes that the engine was asked to make something of a pod, and whether it has failed.
func (p *pictures) makes(uid types.UID, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.of(uid)
	g.made, g.unsure = time.Now(), g.unsure || err != nil
}

// all is what there is of a pod, if a look of late has shown all that was made of it.
func (p *pictures) all(uid types.UID, now time.Time) (seen runtime.Pod, good bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.pods[uid]
	if g == nil || g.unsure || !g.at.After(g.made) || !g.at.After(g.changed) || now.Sub(g.at) >= pictureAge {
		return seen, false
	}
	for _, pic := range g.sandboxes {
		seen.Sandboxes = append(seen.Sandboxes, pic.seen)
	}
	for _, pic := range g.containers {
		seen.Containers = append(seen.Containers, pic.seen)
	}
	order(&seen)
	return seen, true
}

// add takes a single look at a sandbox that was just made.
func (p *pictures) add(at time.Time, s runtime.Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.of(s.UID)
	boxes := map[string]picture[runtime.Sandbox]{s.ID: {s, at, at}} // looks under way read the old map
	maps.Copy(boxes, g.sandboxes)
	g.sandboxes = boxes
}

// log is where the log of a container is, if a look has shown it.
func (p *pictures) log(uid types.UID, id string) (c runtime.Container, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.pods[uid]; g != nil {
		c = g.containers[id].seen
	}
	return c, c.ID != ""
}

// forget forgets a pod.
func (p *pictures) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
}

// change notes that something was changed in a pod that lists do not show.
func (p *pictures) change(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.pods[uid]; g != nil {
		g.sandboxes, g.containers, g.changed = nil, nil, time.Now()
	}
}
