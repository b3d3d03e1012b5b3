package podruntime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// facts are what a pod's environment may ask for beyond its spec.
type facts struct {
	ips     []string // of the pod
	hostIPs []string
	node    *v1.Node // nil: unknown
}

func (f facts) allocatable() v1.ResourceList {
	if f.node == nil {
		return nil
	}
	return f.node.Status.Allocatable
}

// environ collects variables in order; a later one of the same name takes the earlier one's place.
type environ struct {
	vars []runtime.Env
	at   map[string]int
}

func (e *environ) set(name, value string) {
	if i, ok := e.at[name]; ok {
		e.vars[i].Value = value
		return
	}
	if e.at == nil {
		e.at = map[string]int{}
	}
	e.at[name] = len(e.vars)
	e.vars = append(e.vars, runtime.Env{Name: name, Value: value})
}

func (e *environ) lookup(name string) (string, bool) {
	if i, ok := e.at[name]; ok {
		return e.vars[i].Value, true
	}
	return "", false
}

// gathering is the environment of one container while it is put together.
type gathering struct {
	environ
	services environ
	cfg      *Config
	m        *making
	facts    facts

	configMaps map[string]*v1.ConfigMap // read for this container, each once
	secrets    map[string]*v1.Secret
}

// environment is what a container finds in its environment: whole objects first, then single variables, which may refer to
// those before them and to the services', and at last what the services say, unless the container says it itself.
func environment(ctx context.Context, cfg *Config, m *making, f facts) (*environ, error) {
	g := &gathering{cfg: cfg, m: m, facts: f, configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}}
	var err error
	if g.services, err = serviceLinks(ctx, cfg, m.pod); err != nil {
		return nil, err
	}
	for _, from := range m.spec.EnvFrom {
		if err := g.all(ctx, from); err != nil {
			return nil, err
		}
	}
	for _, v := range m.spec.Env {
		value, ok, err := g.value(ctx, v)
		if err != nil {
			return nil, err
		}
		if ok {
			g.set(v.Name, value)
		}
	}
	for _, v := range g.services.vars {
		if _, said := g.lookup(v.Name); !said {
			g.set(v.Name, v.Value)
		}
	}
	return &g.environ, nil
}

// all takes all that an object has.
func (g *gathering) all(ctx context.Context, from v1.EnvFromSource) error {
	var values map[string]string
	switch {
	case from.ConfigMapRef != nil:
		o, err := g.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if err != nil || o == nil {
			return err
		}
		values = o.Data
	case from.SecretRef != nil:
		o, err := g.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		if err != nil || o == nil {
			return err
		}
		values = map[string]string{}
		for k, v := range o.Data {
			values[k] = string(v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		g.set(from.Prefix+k, values[k])
	}
	return nil
}

// value is the value of one variable; ok is false when it is optional and not there.
func (g *gathering) value(ctx context.Context, v v1.EnvVar) (value string, ok bool, err error) {
	from := v.ValueFrom
	switch {
	case from == nil || v.Value != "":
		return podspec.Expand(v.Value, g.known), true, nil
	case from.FieldRef != nil:
		if value, err = field(g.m.pod, from.FieldRef.FieldPath, g.facts); err != nil {
			return "", false, fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		return value, true, nil
	case from.ResourceFieldRef != nil:
		if value, err = podspec.Amount(g.m.pod, g.m.spec, from.ResourceFieldRef, g.facts.allocatable()); err != nil {
			return "", false, fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		return value, true, nil
	case from.ConfigMapKeyRef != nil:
		return g.configMapKey(ctx, from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return g.secretKey(ctx, from.SecretKeyRef)
	case from.FileKeyRef != nil:
		return g.fileKey(from.FileKeyRef)
	}
	return "", false, fmt.Errorf("environment variable %s: valueFrom names no source this agent knows", v.Name)
}

// known is a variable that a later one may refer to.
func (g *gathering) known(name string) (string, bool) {
	if value, ok := g.lookup(name); ok {
		return value, true
	}
	return g.services.lookup(name)
}

func (g *gathering) configMapKey(ctx context.Context, r *v1.ConfigMapKeySelector) (string, bool, error) {
	o, err := g.configMap(ctx, r.Name, r.Optional)
	if err != nil || o == nil {
		return "", false, err
	}
	value, ok := o.Data[r.Key]
	if !ok && !isTrue(r.Optional) {
		return "", false, g.noKey(object{kindConfigMap, g.m.pod.Namespace, r.Name}, r.Key)
	}
	return value, ok, nil
}

func (g *gathering) secretKey(ctx context.Context, r *v1.SecretKeySelector) (string, bool, error) {
	o, err := g.secret(ctx, r.Name, r.Optional)
	if err != nil || o == nil {
		return "", false, err
	}
	value, ok := o.Data[r.Key]
	if !ok && !isTrue(r.Optional) {
		return "", false, g.noKey(object{kindSecret, g.m.pod.Namespace, r.Name}, r.Key)
	}
	return string(value), ok, nil
}

// configMap reads one; nil without an error means that it is optional and not there.
func (g *gathering) configMap(ctx context.Context, name string, optional *bool) (*v1.ConfigMap, error) {
	if o := g.configMaps[name]; o != nil {
		return o, nil
	}
	what := object{kindConfigMap, g.m.pod.Namespace, name}
	if g.cfg.Objects == nil {
		return nil, what.unreadable()
	}
	o, err := g.cfg.Objects.ConfigMap(ctx, what.namespace, name)
	if err != nil {
		return nil, what.missing(err, optional)
	}
	g.configMaps[name] = o
	return o, nil
}

// secret reads one; nil without an error means that it is optional and not there.
func (g *gathering) secret(ctx context.Context, name string, optional *bool) (*v1.Secret, error) {
	if o := g.secrets[name]; o != nil {
		return o, nil
	}
	what := object{kindSecret, g.m.pod.Namespace, name}
	if g.cfg.Objects == nil {
		return nil, what.unreadable()
	}
	o, err := g.cfg.Objects.Secret(ctx, what.namespace, name)
	if err != nil {
		return nil, what.missing(err, optional)
	}
	g.secrets[name] = o
	return o, nil
}

// missing is the error about an object that could not be read; nil: it is optional and not there.
func (o object) missing(err error, optional *bool) error {
	switch gone := errors.Is(err, runtime.ErrNotFound); {
	case gone && isTrue(optional):
		return nil
	case gone:
		err = fmt.Errorf("%s %q %w", strings.ToLower(o.kind), o.name, runtime.ErrNotFound)
	}
	return &missingError{o, err}
}

func (o object) unreadable() error {
	return fmt.Errorf("%s %q: this agent reads no API objects", strings.ToLower(o.kind), o.name)
}

func (g *gathering) noKey(o object, key string) error {
	return &missingError{o, fmt.Errorf("couldn't find key %s in %s %s/%s", key, o.kind, o.namespace, o.name)}
}

// field is the value of one of the pod's own fields (downward API).
func field(pod *v1.Pod, path string, f facts) (string, error) {
	if value, ok := podspec.Field(pod, path); ok {
		return value, nil
	}
	switch path {
	case "spec.nodeName", "spec.host":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		if len(f.hostIPs) == 0 {
			return "", fmt.Errorf("fieldRef %s: the addresses of this node are not known", path)
		}
		if path == "status.hostIP" {
			return f.hostIPs[0], nil
		}
		return strings.Join(f.hostIPs, ","), nil
	case "status.podIP":
		return first(f.ips), nil
	case "status.podIPs":
		return strings.Join(f.ips, ","), nil
	}
	return "", fmt.Errorf("fieldRef: unknown field path %q", path)
}

// inOrder is at most one address of each family, those of the node's primary family first, as the pod's status has them.
func inOrder(ips, hostIPs []string) []string {
	six := func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Unmap().Is6() }
	primary := len(hostIPs) > 0 && six(hostIPs[0])
	var out []string
	for _, want := range []bool{primary, !primary} {
		if i := slices.IndexFunc(ips, func(s string) bool { return six(s) == want }); i >= 0 {
			out = append(out, ips[i])
		}
	}
	return out
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
