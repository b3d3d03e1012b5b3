package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// errQPS is in the kubelet's words.
var errQPS = errors.New("pull QPS exceeded")

// pull brings the image from its registry.
func (w *wish) pull(ctx context.Context) (runtime.Image, error) {
	w.pulled = yes
	credentials, err := w.lookup(ctx)
	if err != nil {
		return runtime.Image{}, w.unready(ctx, err)
	}
	if err := w.records.intend(w.c.Image); err != nil {
		return runtime.Image{}, w.unready(ctx, err)
	}
	start := time.Now()
	if err := w.enter(ctx); err != nil {
		w.records.failed(w.c.Image)
		return runtime.Image{}, err
	}
	w.tell(false, "Pulling", fmt.Sprintf("Pulling image %q", w.c.Image))
	begun := time.Now()
	img, used, err := w.try(ctx, credentials)
	took := time.Since(begun)
	w.room.Release(1)
	if err != nil {
		return runtime.Image{}, w.failed(ctx, err)
	}
	w.records.pulled(w.c.Image, img.ID, used)
	w.waits.forget(w.key())
	whole := time.Since(start)
	w.metrics.duration.Record(whole.Seconds(), sizeLabel(img.Size))
	w.tell(false, "Pulled", fmt.Sprintf("Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.",
		w.c.Image, took.Truncate(time.Millisecond), whole.Truncate(time.Millisecond), img.Size))
	return img, nil
}

// enter waits until there is room for one more pull.
func (w *wish) enter(ctx context.Context) error {
	if w.room.TryAcquire(1) {
		return nil
	}
	w.tell(false, "Pulling", fmt.Sprintf("Pulling image %q waits for other images to be pulled", w.c.Image))
	if err := w.room.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for another image pull: %w", err)
	}
	return nil
}

// try pulls with one credential after the other; without any, anonymously. used is the one that opened, nil: none was needed.
func (w *wish) try(ctx context.Context, credentials []runtime.Credential) (img runtime.Image, used *runtime.Credential, err error) {
	if !w.limit.allow(time.Now()) {
		return img, nil, errQPS
	}
	if len(credentials) == 0 {
		img, err = w.attempt(ctx, nil)
		return img, nil, err
	}
	var failures []error
	for i := range credentials {
		img, err := w.attempt(ctx, &credentials[i].Auth)
		if err == nil {
			return img, &credentials[i], nil
		}
		failures = append(failures, err)
		if _, stalled := errors.AsType[*stalledError](err); stalled || ctx.Err() != nil {
			break
		}
	}
	return img, nil, utilerrors.NewAggregate(failures)
}

// attempt is one call of the engine.
func (w *wish) attempt(ctx context.Context, auth *runtime.Auth) (runtime.Image, error) {
	ctx, progress, done := w.watched(ctx)
	defer done()
	id, err := w.cfg.Images.PullImage(ctx, runtime.PullRequest{
		Image: w.ref, Auth: auth, Annotations: w.pod.Annotations, Progress: progress,
		Sandbox: &runtime.SandboxConfig{
			Pod:    runtime.PodRef{Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.pod.UID},
			Labels: w.pod.Labels, Annotations: w.pod.Annotations,
		},
	})
	if stalled, ok := errors.AsType[*stalledError](context.Cause(ctx)); ok && err != nil {
		return runtime.Image{}, stalled
	}
	if err != nil {
		return runtime.Image{}, err
	}
	img, err := w.cfg.Images.Image(ctx, id)
	if err != nil {
		return img, fmt.Errorf("inspect the pulled image: %w", err)
	}
	return img, nil
}

// stalledError ends a pull that makes no progress.
type stalledError struct{ after time.Duration }

func (e *stalledError) Error() string { return fmt.Sprintf("no progress for %s", e.after) }

// watched is a context that ends when progress has not been called for the deadline.
func (w *wish) watched(ctx context.Context) (own context.Context, progress func(done, total int64), stop func()) {
	if w.cfg.Deadline == 0 {
		return ctx, nil, func() {}
	}
	own, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(w.cfg.Deadline, func() { cancel(&stalledError{w.cfg.Deadline}) })
	return own, func(int64, int64) { timer.Reset(w.cfg.Deadline) }, func() { timer.Stop(); cancel(nil) }
}

// failed is what a pull that failed leads to. One that was cut has not failed; its intent stays, for the engine may have
// brought the image all the same.
func (w *wish) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		w.records.cut(w.c.Image)
		return fmt.Errorf("pull image %q: %w", w.c.Image, context.Cause(ctx))
	}
	w.records.failed(w.c.Image)
	reason, message := judge(w.c.Image, err)
	waiting := w.unpulled(reason, message, err)
	w.waits.failed(w.key(), waiting, time.Now())
	return waiting
}

// Reasons an engine puts at the head of its error.
const (
	unavailable = "RegistryUnavailable"
	unsigned    = "SignatureValidationFailed"
)

// judge is the reason and the message of a pull that failed. With several credentials the reason is the ordinary one,
// unless all failed for the same.
func judge(image string, err error) (reason, message string) {
	all := []error{err}
	if several, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		all = several.Errors()
	}
	for _, kind := range [...]struct{ reason, words string }{{unavailable, "the registry is unavailable"}, {unsigned, "the signature validation failed"}} {
		alike := true
		for _, e := range all {
			alike = alike && strings.HasPrefix(e.Error(), kind.reason)
		}
		if alike {
			return kind.reason, fmt.Sprintf("image pull failed for %s because %s%s", image, kind.words, strings.TrimPrefix(all[0].Error(), kind.reason))
		}
	}
	return "ErrImagePull", err.Error()
}
