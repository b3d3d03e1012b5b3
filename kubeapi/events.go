package kubeapi

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Events tells events to the API server, where people read them under "kubectl describe". Equal ones are counted, many alike
// are put together, and one object is told of at most one every five minutes after the first 25. Those that are no warnings
// wait for a moment in which the server is asked for nothing else: pods that start do not wait for the telling of it. It is
// an observe.Events.
type Events struct {
	client     *Client
	queue      chan queued
	warnings   atomic.Int64  // in queue
	hurry      chan struct{} // there is a warning, or much in queue
	dropped    atomic.Int64
	correlator *record.EventCorrelator
	stamp      int64 // in the name of the last event; no two have the same
}

// queued is an event and when it happened.
type queued struct {
	observe.Event

	at time.Time
}

const (
	eventQueue  = 1000
	eventTries  = 12
	eventWait   = 10 * time.Second // between two tries
	eventWithin = 30 * time.Second // for one try
	eventStop   = 2 * time.Second  // for what is queued when Run is told to end
	eventCalm   = time.Second      // without another request, after which events are sent
	eventAge    = 10 * time.Second // at which one is sent in any case
)

// NewEvents makes a teller of events at rest. Events wait for Run, and while the server does not answer, up to a thousand;
// more are dropped. They keep the time at which they happened.
func NewEvents(c *Client) *Events {
	return &Events{
		client: c, queue: make(chan queued, eventQueue), hurry: make(chan struct{}, 1),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{}),
	}
}

// Event takes an event. It never blocks.
func (e *Events) Event(ev observe.Event) {
	if ev.Warning {
		e.warnings.Add(1)
	}
	select {
	case e.queue <- queued{ev, time.Now()}:
	default:
		e.dropped.Add(1)
		if ev.Warning {
			e.warnings.Add(-1)
		}
	}
	if e.pressing() {
		select {
		case e.hurry <- struct{}{}:
		default: // it is said already
		}
	}
}

// pressing says that what is queued is not to wait for calm. Warnings overtake nothing, so what is before them does not either.
func (e *Events) pressing() bool { return e.warnings.Load() > 0 || len(e.queue) > eventQueue/2 }

// take is the next event, once its time has come; false when ctx has ended before.
func (e *Events) take(ctx context.Context) (q queued, ok bool) {
	select {
	case q = <-e.queue:
	case <-ctx.Done():
		return q, false
	}
	if q.Warning {
		e.warnings.Add(-1)
		return q, true
	}
	for ctx.Err() == nil && !e.pressing() {
		wait := min(time.Until(e.client.asked.last().Add(eventCalm)), time.Until(q.at.Add(eventAge)))
		if wait <= 0 {
			break
		}
		select {
		case <-time.After(wait):
		case <-e.hurry:
		case <-ctx.Done():
		}
	}
	return q, true
}

// Run sends until ctx ends, then what waits, each event with one try. A server that is not there or has too much to do is
// tried again for two minutes; what it refuses is not.
func (e *Events) Run(ctx context.Context) error {
	var open *record.EventCorrelateResult // not told yet
	for ctx.Err() == nil {
		if q, ok := e.take(ctx); ok {
			if r := e.correlate(q); r != nil && !e.insist(ctx, r) {
				open = r
			}
		}
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventStop)
	defer cancel()
	if open != nil {
		e.send(final, open)
	}
	for final.Err() == nil {
		select {
		case q := <-e.queue:
			if q.Warning {
				e.warnings.Add(-1)
			}
			if r := e.correlate(q); r != nil {
				e.send(final, r)
			}
		default:
			return nil
		}
	}
	return nil
}

// correlate makes of an event what is to be sent; nil for nothing.
func (e *Events) correlate(q queued) *record.EventCorrelateResult {
	if n := e.dropped.Swap(0); n > 0 {
		e.client.log.Warn("events were dropped, too many waited", "count", n)
	}
	r, err := e.correlator.EventCorrelate(e.event(q))
	switch {
	case err != nil:
		e.client.log.Warn("an event cannot be sent", "reason", q.Reason, "err", err)
	case !r.Skip:
		return r
	}
	return nil
}

// event is one as the API has it.
func (e *Events) event(q queued) *v1.Event {
	e.stamp = max(e.stamp+1, q.at.UnixNano())
	at := metav1.NewTime(q.at)
	kind := v1.EventTypeNormal
	if q.Warning {
		kind = v1.EventTypeWarning
	}
	namespace := q.About.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: util.GenerateEventName(q.About.Name, e.stamp), Namespace: namespace, Annotations: q.Annotations},
		InvolvedObject: v1.ObjectReference{
			APIVersion: "v1", Kind: q.About.Kind, Namespace: q.About.Namespace, Name: q.About.Name,
			UID: types.UID(q.About.UID), FieldPath: q.About.FieldPath,
		},
		Reason: q.Reason, Message: q.Message, Type: kind,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source:              v1.EventSource{Component: "kubelet", Host: e.client.cfg.Node},
		ReportingController: "kubelet", ReportingInstance: e.client.cfg.Node,
	}
}

// insist sends until it is told, refused or given up; false when ctx has ended before.
func (e *Events) insist(ctx context.Context, r *record.EventCorrelateResult) bool {
	wait := rand.N(eventWait)
	for try := 1; !e.send(ctx, r); try++ {
		if try == eventTries {
			e.client.log.Warn("an event is given up, the API server does not take it", "reason", r.Event.Reason, "object", r.Event.InvolvedObject.Name)
			return true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return false
		}
		wait = eventWait
	}
	return true
}

// send tries once. It is true unless another try makes sense.
func (e *Events) send(ctx context.Context, r *record.EventCorrelateResult) bool {
	ctx, cancel := context.WithTimeout(ctx, eventWithin)
	defer cancel()
	answer := new(v1.Event)
	p := place{e.client.events, "events", r.Event.Namespace, r.Event.Name}
	err := runtime.ErrNotFound
	if r.Event.Count > 1 && r.Patch != nil {
		err = p.patch(ctx, r.Patch, answer)
	}
	if errors.Is(err, runtime.ErrNotFound) { // new, or it was so long ago that the server has forgotten
		made := r.Event.DeepCopy()
		made.ResourceVersion = ""
		err = p.create(ctx, made, answer)
	}
	if err == nil {
		e.correlator.UpdateState(answer)
		return true
	}
	if worthATry(err) {
		e.client.log.Debug("an event is not told", "reason", r.Event.Reason, "err", err)
		return false
	}
	level := slog.LevelWarn
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		level = slog.LevelDebug
	}
	e.client.log.Log(ctx, level, "an event is refused", "reason", r.Event.Reason, "err", err)
	return true
}

// worthATry says that a server may do later what it did not do now.
func worthATry(err error) bool {
	if _, answered := errors.AsType[*apierrors.StatusError](err); !answered {
		return true
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}
