package access

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"

	"github.com/kubeletkit/kubeletkit/observe"
)

// Reviewer asks the API server. It is called concurrently and returns soon after ctx ends. Its errors are those of the
// API server (k8s.io/apimachinery/pkg/api/errors), so that it shows which are worth another attempt. It does not try
// again itself.
type Reviewer interface {
	// ReviewToken creates a TokenReview and returns it with its status.
	ReviewToken(ctx context.Context, r *authnv1.TokenReview) (*authnv1.TokenReview, error)

	// ReviewAccess creates a SubjectAccessReview and returns it with its status.
	ReviewAccess(ctx context.Context, r *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, error)
}

// Config describes an Access. At least one way to authenticate, and either Access or AlwaysAllow, are required.
type Config struct {
	Node string // the node's name, which access is asked for; required with Access

	// Who signs client certificates; at most one of the two. The file has PEM certificates. It is looked at again when
	// certificates are shown, at most every five seconds; while it is unreadable the last good content holds. The
	// function is called for each certificate and gives nil as long as nobody does.
	ClientCAFile string
	ClientCAs    func() *x509.CertPool

	Tokens    Reviewer // nil: tokens mean nothing
	Anonymous bool     // who shows nothing is system:anonymous

	Access      Reviewer
	AlwaysAllow bool // everybody known may do everything; Access must be nil then

	CacheAuthenticated time.Duration // how long a token's answer is kept; 0 means 2 min, negative not at all
	CacheAuthorized    time.Duration // how long a yes is kept; 0 means 5 min, negative not at all
	CacheDenied        time.Duration // how long a no is kept; 0 means 30 s, negative not at all

	Observe observe.To // logger, metrics; zero is silent
}

const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
	authenticated   = "system:authenticated"
)

// Access authenticates and authorizes requests.
type Access struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics
	cas     func() *x509.CertPool // nil: certificates mean nothing
	keys    keys
	tokens  cache[identity]
	rights  cache[authzv1.SubjectAccessReviewStatus]
}

// identity is what a token is worth. nil: nothing.
type identity = *authnv1.UserInfo

// New checks the configuration and reads the file of certificates.
func New(cfg Config) (*Access, error) {
	a := &Access{cfg: cfg, log: cfg.Observe.Logger(), cas: cfg.ClientCAs, keys: newKeys()}
	ins := cfg.Observe.Instruments()
	a.metrics = newMetrics(ins)
	switch {
	case ins.Err != nil:
		return nil, fmt.Errorf("access: %w", ins.Err)
	case cfg.ClientCAFile != "" && cfg.ClientCAs != nil:
		return nil, errors.New("access: ClientCAFile and ClientCAs are both set; give one")
	case cfg.ClientCAFile == "" && cfg.ClientCAs == nil && cfg.Tokens == nil && !cfg.Anonymous:
		return nil, errors.New("access: no way to authenticate; set ClientCAFile, ClientCAs, Tokens or Anonymous")
	case cfg.Access == nil && !cfg.AlwaysAllow:
		return nil, errors.New("access: no way to authorize; set Access or AlwaysAllow")
	case cfg.Access != nil && cfg.AlwaysAllow:
		return nil, errors.New("access: Access and AlwaysAllow are both set; give one")
	case cfg.Access != nil && cfg.Node == "":
		return nil, errors.New("access: Node is required with Access")
	}
	if cfg.ClientCAFile != "" {
		var err error
		if a.cas, err = CAFile(cfg.ClientCAFile, a.log); err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
	}
	kept := cmp.Or(cfg.CacheAuthenticated, 2*time.Minute)
	yes, no := cmp.Or(cfg.CacheAuthorized, 5*time.Minute), cmp.Or(cfg.CacheDenied, 30*time.Second)
	a.tokens.keep = func(identity) time.Duration { return kept }
	a.rights.keep = func(s authzv1.SubjectAccessReviewStatus) time.Duration {
		if s.Allowed {
			return yes
		}
		return no
	}
	return a, nil
}

// Authenticate says who asks; nil is nobody, with or without an error that says why. The answer is the caller's.
func (a *Access) Authenticate(r *http.Request) (*authnv1.UserInfo, error) {
	user, err := a.known(r)
	switch {
	case user != nil:
		return member(user), nil
	case err != nil:
		return nil, err
	case a.cfg.Anonymous:
		return &authnv1.UserInfo{Username: anonymous, Groups: []string{unauthenticated}}, nil
	}
	return nil, nil
}

// known asks all ways in order. One that fails does not stand in the way of the next.
func (a *Access) known(r *http.Request) (*authnv1.UserInfo, error) {
	var failed []error
	for _, way := range []func(*http.Request) (*authnv1.UserInfo, error){a.certificate, a.bearer, a.protocol} {
		user, err := way(r)
		if user != nil && err == nil {
			return user, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// member is a copy of user in the group of those who are known.
func member(user *authnv1.UserInfo) *authnv1.UserInfo {
	user = user.DeepCopy()
	if user.Username != anonymous && !slices.Contains(user.Groups, authenticated) && !slices.Contains(user.Groups, unauthenticated) {
		user.Groups = append(user.Groups, authenticated)
	}
	return user
}

// Authorize says whether user may verb the subresource of resource of this node. An error means no.
func (a *Access) Authorize(ctx context.Context, user *authnv1.UserInfo, verb, resource, subresource string) (bool, error) {
	if user == nil {
		return false, errors.New("authorize: nobody asks")
	}
	if a.cfg.AlwaysAllow {
		return true, nil
	}
	spec := question(user, a.cfg.Node, verb, resource, subresource)
	key, err := a.keys.access(&spec)
	if err != nil {
		return false, fmt.Errorf("authorize %s: %w", user.Username, err)
	}
	status, err := a.rights.get(ctx, key, func(ctx context.Context) (authzv1.SubjectAccessReviewStatus, error) {
		return a.reviewAccess(ctx, spec)
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("authorize %s: %w", user.Username, err)
	case status.Allowed && status.Denied:
		return false, fmt.Errorf("authorize %s: the API server both allows and denies", user.Username)
	}
	return status.Allowed, nil
}

// question is what is asked: cluster-wide resources of the core group, version v1.
func question(user *authnv1.UserInfo, node, verb, resource, subresource string) authzv1.SubjectAccessReviewSpec {
	spec := authzv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups,
		ResourceAttributes: &authzv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: resource, Subresource: subresource, Name: node,
		},
	}
	if user.Extra != nil {
		spec.Extra = make(map[string]authzv1.ExtraValue, len(user.Extra))
		for k, v := range user.Extra {
			spec.Extra[k] = authzv1.ExtraValue(v)
		}
	}
	return spec
}
