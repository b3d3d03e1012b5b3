package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Lease tells every quarter of its duration that the node lives (KEP-589). Client is required.
type Lease struct {
	Client   *Client
	Duration time.Duration // after which the node counts as silent; 0 means 40 s
	Failed   func()        // called from the second failure in a row on; nil: idle connections are closed

	last *coordv1.Lease // as the server answered
}

const (
	leaseNamespace = "kube-node-lease"
	leaseTries     = 5                      // until a missing node is worth a warning
	leaseFirst     = 200 * time.Millisecond // wait after a failed try, doubled up to leaseMost
	leaseMost      = 7 * time.Second
)

// Run renews until ctx ends. Failures are logged and tried again for as long as it takes.
func (l *Lease) Run(ctx context.Context) error {
	if l.Client == nil || l.Duration < 0 {
		return fmt.Errorf("kubeapi: a Lease needs a Client, and its Duration %v must not be negative", l.Duration)
	}
	duration := l.Duration
	if duration == 0 {
		duration = 40 * time.Second
	}
	if l.Failed == nil {
		l.Failed = l.Client.CloseIdle
	}
	every := duration / 4
	next := time.NewTimer(0)
	defer next.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		err := l.renew(ctx, duration)
		if err == nil {
			failures = 0
			next.Reset(every + time.Duration(rand.Int64N(int64(every)/25+1)))
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		failures++
		level := slog.LevelWarn
		if errors.Is(err, runtime.ErrNotFound) && failures < leaseTries {
			level = slog.LevelDebug // a node that is about to be made
		}
		l.Client.log.Log(ctx, level, "the node's lease is not renewed; trying again", "err", err, "failures", failures)
		if failures >= 2 && !apierrors.IsConflict(err) && !errors.Is(err, runtime.ErrNotFound) {
			l.Failed()
		}
		next.Reset(leaseWait(failures))
	}
}

// leaseWait is the time until the next try.
func leaseWait(failures int) time.Duration {
	return min(leaseFirst<<min(failures-1, 10), leaseMost)
}

// renew writes the lease once. A node that is not known yet is runtime.ErrNotFound.
func (l *Lease) renew(ctx context.Context, duration time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, l.Client.cfg.Heartbeat)
	defer cancel()
	name := l.Client.cfg.Node
	p := place{l.Client.leases, "leases", leaseNamespace, name}
	if l.last == nil {
		is := new(coordv1.Lease)
		switch err := p.get(ctx, is); {
		case err == nil:
			l.last = is
		case !errors.Is(err, runtime.ErrNotFound):
			return err
		}
	}
	want := leaseOf(l.last, name, duration, time.Now())
	if len(want.OwnerReferences) == 0 {
		node, err := l.owner(ctx)
		if err != nil {
			return err
		}
		want.OwnerReferences = []metav1.OwnerReference{node}
	}
	answer := new(coordv1.Lease)
	var err error
	if l.last == nil {
		err = p.create(ctx, want, answer)
	} else {
		err = p.update(ctx, want, answer)
	}
	l.last = answer
	if err != nil {
		l.last = nil // read it again
		return err
	}
	l.last.ManagedFields = nil
	return nil
}

// leaseOf is the next state of a lease.
func leaseOf(last *coordv1.Lease, node string, duration time.Duration, now time.Time) *coordv1.Lease {
	want := &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: leaseNamespace}}
	if last != nil {
		want = last.DeepCopy()
		want.ManagedFields = nil
	}
	seconds := int32(duration / time.Second)
	want.Spec.HolderIdentity, want.Spec.LeaseDurationSeconds, want.Spec.RenewTime = &node, &seconds, &metav1.MicroTime{Time: now}
	return want
}

// owner has the lease removed with the node.
func (l *Lease) owner(ctx context.Context) (metav1.OwnerReference, error) {
	node := l.Client.Node()
	if node == nil {
		var err error
		if node, err = l.Client.Get(ctx); err != nil {
			return metav1.OwnerReference{}, err
		}
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}, nil
}
