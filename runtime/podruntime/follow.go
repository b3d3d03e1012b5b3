package podruntime

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kinds of objects that environment variables are read from, as Objects.Follow is given them.
const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
)

// object names one that an environment is read from.
type object struct{ kind, namespace, name string }

// missingError is about an object that could not be read or lacks a key: a change of the object may mend it.
type missingError struct {
	object
	err error
}

func (e *missingError) Error() string { return e.err.Error() }

func (e *missingError) Unwrap() error { return e.err }

// settle is how soon after a failure a change of the object that caused it leads to another attempt. An object that changes
// all the time costs no more than this.
const settle = time.Second

// followed is an object that a container waits for.
type followed struct {
	object
	stop func()
}

// follow has a container that could not be made for want of an object tried again as soon as that object changes. With any
// other error, or none, nothing is followed any more.
func (r *Runtime) follow(pod *v1.Pod, container string, err error) {
	missing, wants := errors.AsType[*missingError](err)
	now, has := r.memory.followed(pod.UID, container)
	if has && wants && now.object == missing.object {
		return
	}
	if has {
		r.memory.unfollow(pod.UID, container)
	}
	if !wants {
		return
	}
	o, uid := missing.object, pod.UID
	stop := r.cfg.Objects.Follow(o.kind, o.namespace, o.name, func() {
		if r.memory.open(uid, container) {
			r.cfg.Changed(uid)
		}
	})
	r.memory.setFollowed(uid, container, followed{o, stop})
}

func (m *memory) followed(uid types.UID, container string) (f followed, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil {
		f, ok = p.follows[container]
	}
	return f, ok
}

func (m *memory) setFollowed(uid types.UID, container string, f followed) {
	m.with(uid, func(p *remembered) {
		if p.follows == nil {
			p.follows = map[string]followed{}
		}
		p.follows[container] = f
	})
}

// unfollow ends what one container follows.
func (m *memory) unfollow(uid types.UID, container string) {
	m.mu.Lock()
	p := m.pods[uid]
	var f followed
	if p != nil {
		f = p.follows[container]
		delete(p.follows, container)
	}
	m.mu.Unlock()
	if f.stop != nil {
		f.stop() // not under the lock: it may wait for a call that wants it
	}
}

// unfollowAll ends what all containers of a pod follow.
func (m *memory) unfollowAll(uid types.UID) {
	m.mu.Lock()
	var stops []func()
	if p := m.pods[uid]; p != nil {
		for _, f := range p.follows {
			stops = append(stops, f.stop)
		}
		p.follows = nil
	}
	m.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// open lets something that failed be tried again before its time, a moment after it failed. It says whether that changes
// anything.
func (m *memory) open(uid types.UID, what string) (opened bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return false
	}
	g, ok := p.gates[what]
	soon := g.shut.Add(settle)
	if !ok || !soon.Before(g.until) {
		return false
	}
	g.until = soon
	p.gates[what] = g
	return true
}
