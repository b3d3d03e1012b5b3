package kubeapi

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kubeletkit/kubeletkit/observe"
)

// Events tells events to the API server, where people read them under "kubectl describe". Equal ones are counted, many alike
// are put together, and one object is told of at most one every five minutes after the first 25. It is an observe.Events.
type Events struct {
	client *Client
	queue  chan observe.Event
}

const (
	eventQueue = 1000
	eventStop  = 2 * time.Second // for what is queued when Run is told to end
)

// NewEvents makes a teller of events at rest. Events wait for Run, up to a thousand; more are dropped.
func NewEvents(c *Client) *Events {
	return &Events{c, make(chan observe.Event, eventQueue)}
}

// Event takes an event. It never blocks.
func (e *Events) Event(ev observe.Event) {
	select {
	case e.queue <- ev:
	default:
		e.client.log.Warn("an event is dropped, too many wait", "kind", ev.About.Kind, "name", ev.About.Name, "reason", ev.Reason)
	}
}

// Run sends until ctx ends, then what waits, each event with one try.
func (e *Events) Run(ctx context.Context) error {
	logs := klog.NewContext(context.WithoutCancel(ctx), logr.FromSlogHandler(e.client.log.Handler()).V(4))
	own, cancel := context.WithCancel(logs)
	defer cancel()
	b := record.NewBroadcaster(record.WithContext(logs))
	defer b.Shutdown()
	watch := b.StartRecordingToSink(eventSink{own, e.client})
	defer watch.Stop()
	recorder := b.NewRecorder(scheme, v1.EventSource{Component: "kubelet", Host: e.client.cfg.Node})
	for {
		select {
		case ev := <-e.queue:
			e.record(recorder, ev)
			continue
		case <-ctx.Done():
		}
		break
	}
	time.AfterFunc(eventStop, cancel)
	for {
		select {
		case ev := <-e.queue:
			e.record(recorder, ev)
		default:
			return nil
		}
	}
}

func (e *Events) record(to record.EventRecorder, ev observe.Event) {
	ref := &v1.ObjectReference{
		APIVersion: "v1", Kind: ev.About.Kind, Namespace: ev.About.Namespace, Name: ev.About.Name,
		UID: types.UID(ev.About.UID), FieldPath: ev.About.FieldPath,
	}
	kind := v1.EventTypeNormal
	if ev.Warning {
		kind = v1.EventTypeWarning
	}
	to.AnnotatedEventf(ref, ev.Annotations, kind, ev.Reason, "%s", ev.Message)
}

// eventSink is what the recorder writes to.
type eventSink struct {
	ctx    context.Context
	client *Client
}

func (s eventSink) place(e *v1.Event) place {
	return place{s.client.events, "events", e.Namespace, e.Name}
}

// Create makes an event.
func (s eventSink) Create(e *v1.Event) (*v1.Event, error) {
	answer := new(v1.Event)
	return answer, bare(s.place(e).create(s.ctx, e, answer))
}

// Update replaces an event.
func (s eventSink) Update(e *v1.Event) (*v1.Event, error) {
	answer := new(v1.Event)
	return answer, bare(s.place(e).update(s.ctx, e, answer))
}

// Patch counts an event once more.
func (s eventSink) Patch(e *v1.Event, patch []byte) (*v1.Event, error) {
	answer := new(v1.Event)
	return answer, bare(s.place(e).patch(s.ctx, patch, answer))
}

// bare is the server's own answer: the recorder looks at the type of an error to know whether to try again.
func bare(err error) error {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return answer
	}
	return err
}
