package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// wish is one Ensure under way.
type wish struct {
	*Store
	pod        *v1.Pod
	c          *v1.Container
	about      observe.Ref
	ref        string // the image with its tag
	repository string // the image with its registry, without tag and digest

	looked      bool
	credentials []runtime.Credential
	missing     []string // pull secrets that could not be read

	present, pulled string // for the metric: true, false, unknown
}

func (w *wish) name() (err error) {
	w.present, w.pulled = unknown, unknown
	w.ref, w.repository, err = names(w.c.Image)
	return err
}

// lookup finds credentials, once and not before they are needed.
func (w *wish) lookup(ctx context.Context) ([]runtime.Credential, error) {
	if w.looked || w.cfg.Credentials == nil {
		return w.credentials, nil
	}
	found, missing, err := w.cfg.Credentials.Lookup(ctx, w.pod, w.repository)
	if err != nil {
		return nil, err
	}
	w.looked, w.credentials, w.missing = true, found, missing
	return found, nil
}

// bring finds or pulls the image.
func (w *wish) bring(ctx context.Context) (runtime.Image, error) {
	always := w.c.ImagePullPolicy == v1.PullAlways
	if !always {
		if img, ok, err := w.use(ctx); ok || err != nil {
			return img, err
		}
	}
	if err := w.backedOff(); err != nil {
		return runtime.Image{}, err
	}
	if always {
		return w.pull(ctx)
	}
	done, err := w.turns.take(ctx, w.ref) // somebody may just be bringing it
	if err != nil {
		return runtime.Image{}, fmt.Errorf("wait for another pull of image %q: %w", w.c.Image, err)
	}
	defer done()
	if img, ok, err := w.use(ctx); ok || err != nil {
		return img, err
	}
	return w.pull(ctx)
}

// use finds an image that is here and that the pod may use.
func (w *wish) use(ctx context.Context) (img runtime.Image, ok bool, err error) {
	img, err = w.cfg.Images.Image(ctx, w.ref)
	switch {
	case err == nil:
		w.present = yes
	case errors.Is(err, runtime.ErrNotFound):
		if w.present, w.pulled = no, yes; w.c.ImagePullPolicy == v1.PullNever {
			return img, false, w.never()
		}
		return img, false, nil
	case ctx.Err() != nil:
		return img, false, fmt.Errorf("inspect image %q: %w", w.c.Image, context.Cause(ctx))
	default:
		return img, false, w.fail("InspectFailed", "ImageInspectError", fmt.Sprintf("Failed to inspect image %q: %v", w.c.Image, err), err)
	}
	may, err := w.records.mayUse(w.c.Image, img.ID, func() ([]runtime.Credential, error) { return w.lookup(ctx) })
	switch {
	case err != nil:
		return img, false, w.unready(ctx, err)
	case !may:
		if w.pulled = yes; w.c.ImagePullPolicy == v1.PullNever {
			return img, false, w.never() // the same words as above: that it is here is nobody's business
		}
		return img, false, nil
	}
	w.pulled = no
	w.tell(false, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", w.c.Image))
	return img, true, nil
}

func (w *wish) never() error {
	return w.fail("ErrImageNeverPull", "ErrImageNeverPull", fmt.Sprintf("Container image %q is not present with pull policy of Never", w.c.Image), runtime.ErrNotFound)
}

// unready is a pull that could not begin.
func (w *wish) unready(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pull image %q: %w", w.c.Image, context.Cause(ctx))
	}
	return w.unpulled("ErrImagePull", err.Error(), err)
}

// unpulled is a pull that failed.
func (w *wish) unpulled(reason, message string, err error) *runtime.WaitingError {
	w.tell(true, "Failed", fmt.Sprintf("Failed to pull image %q: %v", w.c.Image, err))
	if len(w.missing) > 0 {
		w.cfg.Observe.Event(observe.Event{
			About: observe.Pod(w.pod.Namespace, w.pod.Name, string(w.pod.UID)), Warning: true, Reason: "FailedToRetrieveImagePullSecret",
			Message: fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(w.missing, ", ")),
		})
	}
	return &runtime.WaitingError{Waiting: runtime.Waiting{Reason: reason, Message: message}, Err: err}
}

// key is what a failed pull is remembered by.
func (w *wish) key() string { return string(w.pod.UID) + "_" + w.c.Image }

// backedOff says that a failed pull is not due again.
func (w *wish) backedOff() error {
	until, last := w.waits.due(w.key(), time.Now())
	if until.IsZero() {
		return nil
	}
	message := fmt.Sprintf("Back-off pulling image %q", w.c.Image)
	w.tell(false, "BackOff", message)
	if last != nil {
		message += ": " + last.Error()
	}
	return &runtime.WaitingError{Waiting: runtime.Waiting{Reason: "ImagePullBackOff", Message: message, Until: until}, Err: last}
}

// refuse tells the reason as every start that fails does, beside the event that has the cause.
func (w *wish) refuse(err error) error {
	if why, ok := errors.AsType[*runtime.WaitingError](err); ok {
		w.tell(true, "Failed", "Error: "+why.Reason)
	}
	return err
}

// fail tells an event and says why the container waits.
func (w *wish) fail(event, reason, message string, err error) error {
	w.tell(true, event, message)
	return &runtime.WaitingError{Waiting: runtime.Waiting{Reason: reason, Message: message}, Err: err}
}

func (w *wish) tell(warning bool, reason, message string) {
	w.cfg.Observe.Event(observe.Event{About: w.about, Warning: warning, Reason: reason, Message: message})
}
