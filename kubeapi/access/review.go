package access

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/observe"
)

const (
	attempts   = 5
	firstWait  = 500 * time.Millisecond // between two attempts, half as long again each time
	waitJitter = 0.2                    // up to this much is added
	askWithin  = 30 * time.Second       // all attempts together
)

// reviewToken asks the API server what a token is worth. An error is not an answer: it is not kept.
func (a *Access) reviewToken(ctx context.Context, token string) (identity, error) {
	ask := func(ctx context.Context) (*authnv1.TokenReview, error) {
		return a.cfg.Tokens.ReviewToken(ctx, &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token}})
	}
	review, err := try(ctx, a.metrics.authn, ask)
	switch {
	case err != nil:
		return nil, err
	case review.Status.Authenticated:
		return &review.Status.User, nil
	case review.Status.Error != "":
		return nil, errors.New(review.Status.Error)
	}
	return nil, nil
}

// reviewAccess asks the API server whether somebody may do something.
func (a *Access) reviewAccess(ctx context.Context, spec authzv1.SubjectAccessReviewSpec) (authzv1.SubjectAccessReviewStatus, error) {
	ask := func(ctx context.Context) (*authzv1.SubjectAccessReview, error) {
		return a.cfg.Access.ReviewAccess(ctx, &authzv1.SubjectAccessReview{Spec: *spec.DeepCopy()})
	}
	review, err := try(ctx, a.metrics.authz, ask)
	if err != nil {
		return authzv1.SubjectAccessReviewStatus{}, err
	}
	return review.Status, nil
}

// try asks until there is an answer, an error that stays, or no time left.
func try[R any](ctx context.Context, m requests, ask func(context.Context) (*R, error)) (*R, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	wait := firstWait
	for n := 1; ; n++ {
		start := time.Now()
		answer, err := ask(ctx)
		m.record(err, time.Since(start))
		if err == nil && answer == nil {
			err = errors.New("empty answer")
		}
		if err == nil || n == attempts || !passing(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait + time.Duration(rand.Float64()*waitJitter*float64(wait))):
			wait += wait / 2
		}
	}
}

// passing says that an error is of a kind that goes by: the API server is broken for a moment, slow or busy, or the
// connection was lost.
func passing(err error) bool {
	if errors.Is(err, syscall.ECONNRESET) || strings.Contains(err.Error(), "http2: client connection lost") {
		return true
	}
	_, later := apierrors.SuggestsClientDelay(err)
	return later || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// requests are the instruments of one kind of review.
type requests struct{ total, duration observe.Metric }

func (m requests) record(err error, took time.Duration) {
	code := "201"
	if err != nil {
		code = "<error>"
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Code != 0 {
			code = strconv.Itoa(int(status.ErrStatus.Code))
		}
	}
	m.total.Record(1, code)
	m.duration.Record(took.Seconds(), code)
}

type metrics struct {
	authn, authz requests
	left         observe.Metric // seconds a client certificate is still good for
}

func newMetrics(in *observe.Instruments) metrics {
	seconds := []float64{0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10}
	const hour, day = 3600, 24 * 3600
	return metrics{
		authn: requests{
			in.Counter("apiserver_delegated_authn_request_total", "Token reviews sent to the API server.", "code"),
			in.Histogram("apiserver_delegated_authn_request_duration_seconds", "Seconds a token review took.", seconds, "code"),
		},
		authz: requests{
			in.Counter("apiserver_delegated_authz_request_total", "Access reviews sent to the API server.", "code"),
			in.Histogram("apiserver_delegated_authz_request_duration_seconds", "Seconds an access review took.", seconds, "code"),
		},
		left: in.Histogram("apiserver_client_certificate_expiration_seconds", "Seconds that client certificates shown here are still good for.",
			[]float64{0, hour / 2, hour, 2 * hour, 6 * hour, 12 * hour, day, 2 * day, 4 * day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day}),
	}
}
