package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Objects are the ConfigMaps and Secrets of a cluster. They are called from several goroutines at a time, for objects that
// are followed at that moment, and for immutable ones. What is returned is shared and never changed. One that does not exist
// is runtime.ErrNotFound; runtime.ErrInProgress says that it is not known yet, and that changed is called once it is.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)

	// Follow has changed called whenever the object of this kind, "ConfigMap", "Secret" or "ClusterTrustBundle" (any), may be another one than before,
	// also when it comes or goes, until stop is called. Follow does not block, and neither does changed.
	Follow(kind, namespace, name string, changed func()) (stop func())
}

// Tokens makes tokens for the service account of a pod, which are bound to the pod. An empty audience is the API server's
// own; seconds is the wanted lifetime. It is called from several goroutines at a time.
type Tokens interface {
	Token(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (token string, expires time.Time, err error)
}

// need is something a volume is made of that this host does not know by itself.
type need struct {
	kind    string
	name    string // of the object; of a token its audience; of a certificate the volume
	seconds int64  // lifetime of a token
	index   int    // of a certificate in its volume
	signer  string // of trust bundles, instead of a name
	labels  string // which of them
}

const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindToken     = "Token"

	kindBundle      = "ClusterTrustBundle"
	kindCertificate = "PodCertificate"
)

// String names it as errors and events do.
func (n need) String() string {
	switch {
	case n.kind == kindToken:
		return fmt.Sprintf("token for audience %q", n.name)
	case n.kind == kindCertificate:
		return fmt.Sprintf("certificate of source %d", n.index)
	case n.kind == kindBundle && n.name == "":
		return fmt.Sprintf("clustertrustbundle of signer %q", n.signer)
	}
	return fmt.Sprintf("%s %q", strings.ToLower(n.kind), n.name)
}

func tokenNeed(s *v1.ServiceAccountTokenProjection) need {
	n := need{kind: kindToken, name: s.Audience, seconds: 3600} // the API's default
	if s.ExpirationSeconds != nil {
		n.seconds = *s.ExpirationSeconds
	}
	return n
}

// followed says that one hears of changes by following. Tokens and certificates are asked for, and asked for again in time.
func (n need) followed() bool { return n.kind != kindToken && n.kind != kindCertificate }

// needsOf is all that a volume needs.
func needsOf(v *v1.Volume) (out []need) {
	switch {
	case v.ConfigMap != nil:
		return []need{{kind: kindConfigMap, name: v.ConfigMap.Name}}
	case v.Secret != nil:
		return []need{{kind: kindSecret, name: v.Secret.SecretName}}
	case v.Projected == nil:
		return nil
	}
	for i, s := range v.Projected.Sources {
		switch {
		case s.ClusterTrustBundle != nil:
			out = append(out, bundleNeed(s.ClusterTrustBundle))
		case s.PodCertificate != nil:
			out = append(out, certificateNeed(v.Name, i))
		case s.ConfigMap != nil:
			out = append(out, need{kind: kindConfigMap, name: s.ConfigMap.Name})
		case s.Secret != nil:
			out = append(out, need{kind: kindSecret, name: s.Secret.Name})
		case s.ServiceAccountToken != nil:
			out = append(out, tokenNeed(s.ServiceAccountToken))
		}
	}
	return out
}

// canAsk says whether this agent has anybody to ask for such a thing.
func (m *Manager) canAsk(n need) bool {
	switch n.kind {
	case kindToken:
		return m.cfg.Tokens != nil
	case kindCertificate:
		return m.cfg.Certificates != nil
	case kindBundle:
		return m.cfg.Objects != nil && m.cfg.Bundles != nil
	}
	return m.cfg.Objects != nil
}

// ask looks for what is needed. The value is a *v1.ConfigMap, a *v1.Secret, a string or a *credential. A token expires then,
// a certificate is to be renewed.
func (m *Manager) ask(ctx context.Context, pod *v1.Pod, n need, i *issuing) (value any, expires time.Time, err error) {
	switch n.kind {
	case kindConfigMap:
		value, err = m.cfg.Objects.ConfigMap(ctx, pod.Namespace, n.name)
	case kindSecret:
		value, err = m.cfg.Objects.Secret(ctx, pod.Namespace, n.name)
	case kindBundle:
		text, err := m.anchors(ctx, n)
		return text, expires, err
	case kindCertificate:
		c, renew, err := m.certified(ctx, pod, n, i)
		if err != nil {
			return nil, renew, err
		}
		return c, renew, nil
	default:
		if value, expires, err = m.cfg.Tokens.Token(ctx, pod, n.name, n.seconds); err != nil {
			return nil, expires, fmt.Errorf("request a %v: %w", n, err)
		}
		return value, expires, nil
	}
	switch {
	case errors.Is(err, runtime.ErrNotFound):
		return nil, expires, fmt.Errorf("%v %w", n, runtime.ErrNotFound)
	case err != nil:
		return nil, expires, fmt.Errorf("look up %v: %w", n, err)
	}
	return value, expires, nil
}

func immutable(object any) bool {
	var is *bool
	switch o := object.(type) {
	case *v1.ConfigMap:
		is = o.Immutable
	case *v1.Secret:
		is = o.Immutable
	}
	return is != nil && *is
}

// contents is what an object holds, by key.
func contents(object any) map[string][]byte {
	switch o := object.(type) {
	case *v1.ConfigMap:
		all := make(map[string][]byte, len(o.Data)+len(o.BinaryData))
		maps.Copy(all, o.BinaryData)
		for k, v := range o.Data {
			all[k] = []byte(v)
		}
		return all
	case *v1.Secret:
		return o.Data
	}
	return nil
}

// selection is which keys of an object become files, and how.
type selection struct {
	items    []v1.KeyToPath // none: all
	mode     *int32
	optional *bool
}

// pickKeys adds the files of an object.
func (r request) pickKeys(to payload, n need, s selection) error {
	optional := s.optional != nil && *s.optional
	object, err := r.answer(n)
	if err != nil && (!optional || !errors.Is(err, runtime.ErrNotFound)) {
		return err
	}
	has := contents(object)
	if len(s.items) == 0 {
		var errs []error
		for key, data := range has {
			errs = append(errs, to.add(key, file{data: data, mode: modeOf(s.mode)}))
		}
		return errors.Join(errs...)
	}
	var errs []error
	for _, item := range s.items {
		data, ok := has[item.Key]
		switch {
		case ok:
			f := file{data: data, mode: modeOf(s.mode)}
			if item.Mode != nil {
				f.mode = *item.Mode
			}
			errs = append(errs, to.add(item.Path, f))
		case !optional:
			errs = append(errs, fmt.Errorf("%v has no key %q, which the volume is to show as file %q", n, item.Key, item.Path))
		}
	}
	return errors.Join(errs...)
}

// modeOf is a default mode, or the API's default of it, which is the same for all kinds.
func modeOf(given *int32) int32 {
	if given == nil {
		return v1.ConfigMapVolumeSourceDefaultMode
	}
	return *given
}
