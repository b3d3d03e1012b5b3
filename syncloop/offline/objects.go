package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	patience = 3 * time.Second // with the objects behind, when there is another answer
	askAgain = 6 * time.Minute // the end that is told of a kept token, so that it is asked for anew before long
)

// ConfigMap is one ConfigMap, the kept one when nobody else knows it.
func (c *Cache) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	v, _, err := answer(ctx, c, configMapFile(namespace, name), func(ctx context.Context) (*v1.ConfigMap, error) {
		return c.cfg.Objects.ConfigMap(ctx, namespace, name)
	})
	return v, err
}

// Secret is one Secret, the kept one when nobody else knows it.
func (c *Cache) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	v, _, err := answer(ctx, c, secretFile(namespace, name), func(ctx context.Context) (*v1.Secret, error) {
		return c.cfg.Objects.Secret(ctx, namespace, name)
	})
	return v, err
}

// Services are those of a namespace, the kept ones when nobody else knows them.
func (c *Cache) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	v, _, err := answer(ctx, c, servicesFile(namespace), func(ctx context.Context) ([]*v1.Service, error) {
		return c.cfg.Objects.Services(ctx, namespace)
	})
	return v, err
}

// Class is the handler of a runtime class, the kept one when nobody else knows it.
func (c *Cache) Class(name string) (handler string, err error) {
	handler, _, err = answer(context.Background(), c, classFile(name), func(context.Context) (string, error) {
		return c.cfg.Objects.Class(name)
	})
	return handler, err
}

// token is a token as it is kept.
type token struct {
	Token   string      `json:"token"`
	Expires metav1.Time `json:"expires"`
}

// Token is a token for a pod's service account. When nobody can make one it is the last one of that audience, even when its
// time is over; the end it is told with is then when to ask again, a few minutes from now.
func (c *Cache) Token(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (text string, expires time.Time, err error) {
	file := tokenFile(pod.UID, audience)
	var whyKept error
	t, kept, err := answer(ctx, c, file, func(ctx context.Context) (token, error) {
		text, expires, err := c.cfg.Objects.Token(ctx, pod, audience, seconds)
		whyKept = err
		return token{text, metav1.NewTime(expires)}, err
	})
	c.mu.Lock()
	news := kept && !c.stale[file]
	if kept {
		c.stale[file] = true
	} else if err == nil {
		delete(c.stale, file)
	}
	c.mu.Unlock()
	if !kept {
		return t.Token, t.Expires.Time, err
	}
	now := time.Now()
	if news {
		c.tokenNotRenewed(pod, audience, t.Expires.Time, now, whyKept)
	}
	return t.Token, now.Add(askAgain), nil
}

func (c *Cache) tokenNotRenewed(pod *v1.Pod, audience string, end, now time.Time, why error) {
	ends := "ends"
	if end.Before(now) {
		ends = "ended"
	}
	of := "the API server"
	if audience != "" {
		of = fmt.Sprintf("audience %q", audience)
	}
	c.cfg.Observe.Event(observe.Event{
		About: observe.Pod(pod.Namespace, pod.Name, string(pod.UID)), Warning: true, Reason: "TokenNotRenewed",
		Message: fmt.Sprintf("The service account token for %s cannot be renewed; the last one, which %s at %s, is used: %v", of, ends, end.UTC().Format(time.RFC3339), why),
	})
}

// Follow is that of the objects behind. What was kept does not change.
func (c *Cache) Follow(kind, namespace, name string, changed func()) (stop func()) {
	return c.cfg.Objects.Follow(kind, namespace, name, changed)
}

// answer asks, remembers, and falls back to what was kept.
func answer[T any](ctx context.Context, c *Cache, file string, ask func(context.Context) (T, error)) (v T, kept bool, err error) {
	asking := ctx
	if c.store.has(file) && c.may(file) {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		asking = limited
	}
	v, err = ask(asking)
	switch {
	case err == nil:
		if c.keeps(file) {
			c.store.put(file, slim(v), sealed(file))
		}
		return v, false, nil
	case errors.Is(err, runtime.ErrNotFound):
		c.store.drop(file)
		return v, false, err
	case ctx.Err() != nil || !c.fallsBack(err):
		return v, false, err
	}
	var old T
	switch e := c.store.get(file, &old); {
	case e == nil:
		kind, _, _ := strings.Cut(file, "-")
		c.metrics.answers.Record(1, kind)
		c.log.Debug("answered from what was kept", "kind", kind, "err", err)
		return old, true, nil
	case errors.Is(e, fs.ErrNotExist):
		return v, false, err
	default:
		return v, false, fmt.Errorf("%w; what was kept of it %w", err, e)
	}
}

// keeps says that a pod of the last set needs this, and that it may be written.
func (c *Cache) keeps(file string) bool {
	of, _ := owner(file)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used[of] && c.may(file)
}

// may says that there is a key for what needs one.
func (c *Cache) may(file string) bool { return !sealed(file) || c.cfg.Key != nil }

// fallsBack says whether what was kept may be the answer in place of that error.
func (c *Cache) fallsBack(err error) bool {
	c.mu.Lock()
	complete := c.complete
	c.mu.Unlock()
	return !complete || unreachable(err)
}

// unreachable says that an error is nobody's answer: a server that refuses has spoken.
func unreachable(err error) bool {
	if errors.Is(err, runtime.ErrInProgress) {
		return false
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown, metav1.StatusReasonInternalError, metav1.StatusReasonServerTimeout,
		metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests:
		return true
	default:
		return false
	}
}

// slim is an object without what nobody here reads.
func slim(v any) any {
	switch o := v.(type) {
	case *v1.Pod:
		s := *o
		s.ManagedFields = nil
		return &s
	case *v1.ConfigMap:
		s := *o
		s.ManagedFields = nil
		return &s
	case *v1.Secret:
		s := *o
		s.ManagedFields = nil
		return &s
	}
	if services, ok := v.([]*v1.Service); ok {
		all := make([]v1.Service, len(services))
		for i, o := range services {
			all[i] = *o
			all[i].ManagedFields = nil
		}
		return all
	}
	return v
}
