package staticpod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkReferences refuses what stands in the API server: a pod from a file runs without it.
func checkReferences(spec *v1.PodSpec, r *report) {
	refuse := func(at *field.Path, kind string) {
		r.add(at, "uses %s of the API server, which a pod from a file cannot", kind)
	}
	at := field.NewPath("spec")
	if spec.ServiceAccountName != "" {
		refuse(at.Child("serviceAccountName"), "a ServiceAccount")
	}
	for i, s := range spec.ImagePullSecrets {
		if s.Name != "" {
			refuse(at.Child("imagePullSecrets").Index(i), "a Secret")
		}
	}
	for i := range spec.ResourceClaims {
		refuse(at.Child("resourceClaims").Index(i), "a ResourceClaim")
	}
	eachContainer(spec, func(c *v1.Container, at *field.Path) {
		for i, e := range c.EnvFrom {
			from := at.Child("envFrom").Index(i)
			if e.ConfigMapRef != nil {
				refuse(from.Child("configMapRef"), "a ConfigMap")
			}
			if e.SecretRef != nil {
				refuse(from.Child("secretRef"), "a Secret")
			}
		}
		for i, e := range c.Env {
			from := at.Child("env").Index(i).Child("valueFrom")
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				refuse(from.Child("configMapKeyRef"), "a ConfigMap")
			}
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				refuse(from.Child("secretKeyRef"), "a Secret")
			}
		}
	})
	for i := range spec.Volumes {
		if field, kind := volumeReference(&spec.Volumes[i].VolumeSource); kind != "" {
			refuse(at.Child("volumes").Index(i).Child(field), kind)
		}
		checkProjected(&spec.Volumes[i], at.Child("volumes").Index(i).Child("projected", "sources"), refuse)
	}
}

func checkProjected(v *v1.Volume, at *field.Path, refuse func(*field.Path, string)) {
	if v.Projected == nil {
		return
	}
	for i, s := range v.Projected.Sources {
		at := at.Index(i)
		if s.ConfigMap != nil {
			refuse(at.Child("configMap"), "a ConfigMap")
		}
		if s.Secret != nil {
			refuse(at.Child("secret"), "a Secret")
		}
		if s.ServiceAccountToken != nil {
			refuse(at.Child("serviceAccountToken"), "a ServiceAccount")
		}
		if s.ClusterTrustBundle != nil {
			refuse(at.Child("clusterTrustBundle"), "a ClusterTrustBundle")
		}
		if s.PodCertificate != nil {
			refuse(at.Child("podCertificate"), "a PodCertificateRequest")
		}
	}
}

// volumeReference is the kind of object a volume needs, empty for one that needs none.
func volumeReference(v *v1.VolumeSource) (field, kind string) {
	switch {
	case v.ConfigMap != nil:
		return "configMap", "a ConfigMap"
	case v.Secret != nil:
		return "secret", "a Secret"
	case v.PersistentVolumeClaim != nil:
		return "persistentVolumeClaim", "a PersistentVolumeClaim"
	case v.Ephemeral != nil:
		return "ephemeral", "a PersistentVolumeClaim"
	case v.CSI != nil:
		return "csi", "a CSIDriver"
	case v.Glusterfs != nil:
		return "glusterfs", "Endpoints"
	case v.AzureFile != nil:
		return "azureFile", "a Secret"
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		return "iscsi", "a Secret"
	case v.FlexVolume != nil && v.FlexVolume.SecretRef != nil:
		return "flexVolume", "a Secret"
	case v.CephFS != nil && v.CephFS.SecretRef != nil:
		return "cephfs", "a Secret"
	case v.RBD != nil && v.RBD.SecretRef != nil:
		return "rbd", "a Secret"
	case v.Cinder != nil && v.Cinder.SecretRef != nil:
		return "cinder", "a Secret"
	case v.ScaleIO != nil && v.ScaleIO.SecretRef != nil:
		return "scaleIO", "a Secret"
	case v.StorageOS != nil && v.StorageOS.SecretRef != nil:
		return "storageos", "a Secret"
	}
	return "", ""
}

// eachContainer calls f with all containers of the pod, debugging ones too.
func eachContainer(spec *v1.PodSpec, f func(c *v1.Container, at *field.Path)) {
	at := field.NewPath("spec")
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i], at.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		f(&spec.Containers[i], at.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		f((*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), at.Child("ephemeralContainers").Index(i))
	}
}
