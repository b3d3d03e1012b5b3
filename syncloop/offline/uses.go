package offline

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kinds of what is kept; a file's name begins with one.
const (
	kindPod       = "pod"
	kindConfigMap = "configmap"
	kindSecret    = "secret"
	kindServices  = "services" // of one namespace
	kindToken     = "token"
	kindClass     = "class"
)

var kinds = []string{kindPod, kindConfigMap, kindSecret, kindServices, kindToken, kindClass} //nolint:gochecknoglobals // a constant

// Names of files say nothing and are safe, whatever the object is called.

func podFile(uid types.UID) string                { return file(kindPod, string(uid)) }
func configMapFile(namespace, name string) string { return file(kindConfigMap, namespace+"/"+name) }
func secretFile(namespace, name string) string    { return file(kindSecret, namespace+"/"+name) }
func servicesFile(namespace string) string        { return file(kindServices, namespace) }
func classFile(name string) string                { return file(kindClass, name) }

// tokenFile is one of the tokens of a pod. Which audiences there are is not all said in its spec, so they are kept and
// removed together: owner is the part of the name they share.
func tokenFile(uid types.UID, audience string) string {
	return file(kindToken, string(uid)) + "-" + hash(audience)
}

func isPod(file string) bool { return strings.HasPrefix(file, kindPod+"-") }

func file(kind, key string) string { return kind + "-" + hash(key) }

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// owner is what a file is kept for: itself, or for a token all those of its pod; ok is false for a file that is none of ours.
func owner(name string) (of string, ok bool) {
	parts := strings.Split(strings.TrimSuffix(name, damagedSuffix), "-")
	for _, p := range parts[1:] {
		if b, err := hex.DecodeString(p); err != nil || len(b) != 16 {
			return "", false
		}
	}
	long := 2
	if parts[0] == kindToken {
		long = 3
	}
	if len(parts) != long || !slices.Contains(kinds, parts[0]) {
		return "", false
	}
	return parts[0] + "-" + parts[1], true
}

// sealed says that a file holds what nobody but the agent may read.
func sealed(name string) bool {
	return strings.HasPrefix(name, kindSecret+"-") || strings.HasPrefix(name, kindToken+"-")
}

// uses names the files with what a pod needs to start.
func uses(p *v1.Pod, need func(file string)) {
	need(file(kindToken, string(p.UID)))
	need(servicesFile(p.Namespace))
	need(servicesFile(v1.NamespaceDefault)) // the API server's own
	if c := p.Spec.RuntimeClassName; c != nil {
		need(classFile(*c))
	}
	u := user{p.Namespace, need}
	for _, s := range p.Spec.ImagePullSecrets {
		u.secret(s.Name)
	}
	for i := range p.Spec.InitContainers {
		u.environment(p.Spec.InitContainers[i].Env, p.Spec.InitContainers[i].EnvFrom)
	}
	for i := range p.Spec.Containers {
		u.environment(p.Spec.Containers[i].Env, p.Spec.Containers[i].EnvFrom)
	}
	for i := range p.Spec.EphemeralContainers {
		u.environment(p.Spec.EphemeralContainers[i].Env, p.Spec.EphemeralContainers[i].EnvFrom)
	}
	for i := range p.Spec.Volumes {
		u.volume(&p.Spec.Volumes[i].VolumeSource)
	}
}

// user is a pod that uses objects of its namespace.
type user struct {
	namespace string
	need      func(file string)
}

func (u user) configMap(name string) { u.need(configMapFile(u.namespace, name)) }
func (u user) secret(name string)    { u.need(secretFile(u.namespace, name)) }

func (u user) local(ref *v1.LocalObjectReference) {
	if ref != nil {
		u.secret(ref.Name)
	}
}

func (u user) environment(env []v1.EnvVar, from []v1.EnvFromSource) {
	for _, e := range env {
		switch f := e.ValueFrom; {
		case f == nil:
		case f.ConfigMapKeyRef != nil:
			u.configMap(f.ConfigMapKeyRef.Name)
		case f.SecretKeyRef != nil:
			u.secret(f.SecretKeyRef.Name)
		}
	}
	for _, f := range from {
		if f.ConfigMapRef != nil {
			u.configMap(f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			u.secret(f.SecretRef.Name)
		}
	}
}

func (u user) volume(v *v1.VolumeSource) {
	switch {
	case v.ConfigMap != nil:
		u.configMap(v.ConfigMap.Name)
	case v.Secret != nil:
		u.secret(v.Secret.SecretName)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				u.configMap(s.ConfigMap.Name)
			}
			if s.Secret != nil {
				u.secret(s.Secret.Name)
			}
		}
	case v.CSI != nil:
		u.local(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		u.secret(v.AzureFile.SecretName)
	case v.CephFS != nil:
		u.local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		u.local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		u.local(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		u.local(v.ISCSI.SecretRef)
	case v.RBD != nil:
		u.local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		u.local(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		u.local(v.StorageOS.SecretRef)
	}
}
