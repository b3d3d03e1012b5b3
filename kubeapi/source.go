package kubeapi

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// Source delivers the pods that are bound to the Client's node, terminal ones too. Pods that only mirror static ones are
// kept back and shown to Mirrors. What a pod says of its own source is overruled: these come from the API server. It is a
// syncloop.PodSource.
type Source struct {
	Client  *Client              // required
	Mirrors func(pods []*v1.Pod) // called with all of them before each delivery; nil: nobody cares
}

// Run delivers until ctx ends. It waits for the Node object first, which the Client follows while its Run runs: who admits pods
// must know labels and sizes.
func (s *Source) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	const patience = 30 * time.Second
	waits := time.AfterFunc(patience, func() {
		s.Client.log.Warn("pods wait until the object of this node is known; see that the Client runs, and that the node is registered", "node", s.Client.cfg.Node)
	})
	err := s.Client.node.awaitOne(ctx)
	waits.Stop()
	if err != nil {
		return nil // ctx has ended
	}
	pods := newWatched[*v1.Pod](s.Client, s.Client.pods, &v1.Pod{}, "pods", "", fields.OneTermEqualSelector("spec.nodeName", s.Client.cfg.Node))
	ring := make(chan struct{}, 1)
	pods.changed = func() {
		select {
		case ring <- struct{}{}:
		default:
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		pods.run(ctx)
	}()
	defer func() { <-done }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ring:
		}
		all, complete := pods.all()
		if !complete {
			continue
		}
		own, mirrors := split(all)
		if s.Mirrors != nil {
			s.Mirrors(mirrors)
		}
		set(own, true)
	}
}

// split tells mirrors from pods.
func split(all []*v1.Pod) (own, mirrors []*v1.Pod) {
	for _, p := range all {
		switch _, mirror := p.Annotations[podspec.MirrorAnnotation]; {
		case mirror:
			mirrors = append(mirrors, p)
		case podspec.Static(p): // an annotation that a user wrote: static pods have rights that others do not
			p = p.DeepCopy()
			p.Annotations[podspec.SourceAnnotation] = "api"
			own = append(own, p)
		default:
			own = append(own, p)
		}
	}
	return own, mirrors
}
