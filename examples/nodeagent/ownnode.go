package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/stats"
	"github.com/kubeletkit/kubeletkit/status/nodestatus"
)

// sizes is how much this machine has for pods.
func sizes(b *build, o *options, figures *stats.Collector) nodestatus.Sizes {
	storage := figures.Storage
	if !value(o.kubelet.LocalStorageCapacityIsolation) {
		storage = nil
	}
	return nodestatus.Sizes{
		Machine: machineOf(figures), MaxPods: int(o.kubelet.MaxPods), PodsPerCore: int(o.kubelet.PodsPerCore), EvictionHard: o.kubelet.EvictionHard,
		KubeReserved: one(b, nodestatus.ParseReserved, o.kubelet.KubeReserved), SystemReserved: one(b, nodestatus.ParseReserved, o.kubelet.SystemReserved),
		Storage: storage,
	}
}

func machineOf(figures *stats.Collector) func() (nodestatus.Machine, error) {
	return func() (nodestatus.Machine, error) {
		m, err := figures.Machine()
		return nodestatus.Machine(m), err
	}
}

// ownNode is this node by its own account: what it would register, and as big as it would report. By it pods are let in as long as
// there is no Node object. It is looked at anew every ten seconds at most, as a report would be.
type ownNode struct {
	initial  *v1.Node
	sizes    nodestatus.Sizes
	capacity nodestatus.Setter
	log      *slog.Logger

	mu        sync.Mutex // guards the rest
	node      *v1.Node
	looked    time.Time
	complaint string
}

const ownFor = 10 * time.Second

func newOwnNode(ctx context.Context, b *build, o *options, figures *stats.Collector, log *slog.Logger) *ownNode {
	s := sizes(b, o, figures)
	n := &ownNode{initial: one(b, nodestatus.Initial, registration(o)), sizes: s, capacity: one(b, nodestatus.Capacity, s), log: log}
	if b.err == nil {
		b.err = n.fits(ctx)
	}
	return n
}

// fits says what more is kept back of than this machine has, if that can be told.
func (n *ownNode) fits(ctx context.Context) error {
	node := n.initial.DeepCopy()
	if err := n.capacity(ctx, node); err == nil { // else who asks for the node is told
		return n.sizes.Fits(node.Status.Capacity)
	}
	return nil
}

// object is the node as it was when all of its size could be told last; nil before that: pods are refused for what is known to be
// too little.
func (n *ownNode) object() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.looked.IsZero() || time.Since(n.looked) >= ownFor {
		n.look()
		n.looked = time.Now()
	}
	return n.node
}

// sized is the Node object, or as long as that says nothing of this machine's size, the node by its own account: programs are told
// of it that know no limit of their own.
func sized(object, own func() *v1.Node) func() *v1.Node {
	return func() *v1.Node {
		if n := object(); n != nil && len(n.Status.Allocatable) > 0 {
			return n
		}
		return own()
	}
}

func (n *ownNode) look() {
	node := n.initial.DeepCopy()
	err := n.capacity(context.Background(), node)
	if c := node.Status.Capacity; err == nil && (c.Cpu().IsZero() || c.Memory().IsZero()) {
		err = errors.New("the machine does not say how many processors or how much memory it has")
	}
	if err != nil {
		if text := err.Error(); text != n.complaint {
			n.complaint = text
			n.log.Warn("it cannot be told how much room there is for pods; what was known counts, or none is refused for lack of it", "err", err)
		}
		return
	}
	n.node, n.complaint = node, ""
}
