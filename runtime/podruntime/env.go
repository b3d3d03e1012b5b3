package podruntime

import (
	"context"
	"errors"
	"fmt"
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
	e.at[name] = len(e.vars)
	e.vars = append(e.vars, runtime.Env{Name: name, Value: value})
}

func (e *environ) lookup(name string) (string, bool) {
	if i, ok := e.at[name]; ok {
		return e.vars[i].Value, true
	}
	return "", false
}

// environment is what a container finds in its environment: whole objects first, then single variables, which may refer to
// those before them.
func environment(ctx context.Context, objects Objects, pod *v1.Pod, c *v1.Container, f facts) (*environ, error) {
	e := &environ{at: map[string]int{}}
	for _, from := range c.EnvFrom {
		if err := envFrom(ctx, objects, pod, from, e); err != nil {
			return nil, err
		}
	}
	for _, v := range c.Env {
		value, ok, err := envValue(ctx, objects, pod, c, v, f, e)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		if ok {
			e.set(v.Name, value)
		}
	}
	return e, nil
}

func envFrom(ctx context.Context, objects Objects, pod *v1.Pod, from v1.EnvFromSource, e *environ) error {
	values, err := map[string]string(nil), error(nil)
	switch {
	case from.ConfigMapRef != nil:
		values, err = configMap(ctx, objects, pod.Namespace, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		values, err = secret(ctx, objects, pod.Namespace, from.SecretRef.Name, from.SecretRef.Optional)
	}
	if err != nil {
		return err
	}
	for _, k := range sortedKeys(values) {
		e.set(from.Prefix+k, values[k])
	}
	return nil
}

// envValue is the value of one variable; ok is false when it is optional and not there.
func envValue(ctx context.Context, objects Objects, pod *v1.Pod, c *v1.Container, v v1.EnvVar, f facts, e *environ) (value string, ok bool, err error) {
	from := v.ValueFrom
	switch {
	case from == nil:
		return podspec.Expand(v.Value, e.lookup), true, nil
	case from.FieldRef != nil:
		value, err = field(pod, from.FieldRef.FieldPath, f)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = podspec.Amount(pod, c, from.ResourceFieldRef, f.allocatable())
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		values, err := configMap(ctx, objects, pod.Namespace, r.Name, r.Optional)
		return pick(values, "configmap", r.Name, r.Key, r.Optional, err)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		values, err := secret(ctx, objects, pod.Namespace, r.Name, r.Optional)
		return pick(values, "secret", r.Name, r.Key, r.Optional, err)
	}
	return "", false, errors.New("valueFrom names no source this agent knows")
}

func pick(values map[string]string, kind, name, key string, optional *bool, err error) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	v, ok := values[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("%s %q has no key %q", kind, name, key)
	}
	return v, ok, nil
}

func configMap(ctx context.Context, objects Objects, namespace, name string, optional *bool) (map[string]string, error) {
	if objects == nil {
		return nil, fmt.Errorf("configmap %q: this agent reads no API objects", name)
	}
	m, err := objects.ConfigMap(ctx, namespace, name)
	switch {
	case errors.Is(err, runtime.ErrNotFound) && optional != nil && *optional:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("configmap %q: %w", name, err)
	}
	return m.Data, nil
}

func secret(ctx context.Context, objects Objects, namespace, name string, optional *bool) (map[string]string, error) {
	if objects == nil {
		return nil, fmt.Errorf("secret %q: this agent reads no API objects", name)
	}
	s, err := objects.Secret(ctx, namespace, name)
	switch {
	case errors.Is(err, runtime.ErrNotFound) && optional != nil && *optional:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("secret %q: %w", name, err)
	}
	out := make(map[string]string, len(s.Data))
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out, nil
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
	case "status.hostIP":
		return first(f.hostIPs), nil
	case "status.hostIPs":
		return strings.Join(f.hostIPs, ","), nil
	case "status.podIP":
		return first(f.ips), nil
	case "status.podIPs":
		return strings.Join(f.ips, ","), nil
	}
	return "", fmt.Errorf("fieldRef: unknown field path %q", path)
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
