package staticpod

import (
	"path"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Fields of the pod that a file of a downwardAPI volume can hold.
var fileFields = []string{ //nolint:gochecknoglobals // constant
	"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
}

func (v *validator) checkVolumes() {
	for i := range v.spec.Volumes {
		vol, at := &v.spec.Volumes[i], field.NewPath("spec", "volumes").Index(i)
		switch {
		case vol.Name == "":
			v.add(at.Child("name"), "is missing")
		case v.volumes[vol.Name] != nil:
			v.add(at.Child("name"), "%s is the name of another volume too", quote(vol.Name))
		default:
			v.label(at.Child("name"), vol.Name)
			v.volumes[vol.Name] = vol
		}
		if kinds := volumeKinds(&vol.VolumeSource); len(kinds) > 1 {
			v.add(at, "must be of one kind, but is %s", strings.Join(kinds, " and "))
		}
		v.volume(&vol.VolumeSource, at)
	}
}

// volumeKinds are the sources that are set, by their name in a manifest.
func volumeKinds(s *v1.VolumeSource) (kinds []string) {
	val := reflect.ValueOf(s).Elem()
	for i := range val.NumField() {
		if !val.Field(i).IsNil() {
			name, _, _ := strings.Cut(val.Type().Field(i).Tag.Get("json"), ",")
			kinds = append(kinds, name)
		}
	}
	return kinds
}

func (v *validator) volume(s *v1.VolumeSource, at *field.Path) {
	if e := s.EmptyDir; e != nil {
		v.emptyDir(e, at.Child("emptyDir"))
	}
	if h := s.HostPath; h != nil {
		at := at.Child("hostPath")
		v.required(at.Child("path"), h.Path)
		v.noBacksteps(at.Child("path"), h.Path)
		if h.Type != nil {
			oneOf(v.report, at.Child("type"), *h.Type, v1.HostPathUnset, v1.HostPathDirectory, v1.HostPathDirectoryOrCreate, v1.HostPathFile,
				v1.HostPathFileOrCreate, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
		}
	}
	if d := s.DownwardAPI; d != nil {
		v.mode(at.Child("downwardAPI", "defaultMode"), d.DefaultMode, 0o777)
		v.downwardFiles(d.Items, at.Child("downwardAPI", "items"))
	}
	if p := s.Projected; p != nil {
		v.projected(p, at.Child("projected"))
	}
	if img := s.Image; img != nil {
		v.required(at.Child("image", "reference"), img.Reference)
		oneOf(v.report, at.Child("image", "pullPolicy"), img.PullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	}
	v.networkVolume(s, at)
}

func (v *validator) emptyDir(e *v1.EmptyDirVolumeSource, at *field.Path) {
	if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		v.add(at.Child("sizeLimit"), "%s is negative", e.SizeLimit)
	}
	if !strings.HasPrefix(string(e.Medium), string(v1.StorageMediumHugePagesPrefix)) && e.Medium != v1.StorageMediumDefault {
		oneOf(v.report, at.Child("medium"), e.Medium, v1.StorageMediumMemory, v1.StorageMediumHugePages)
	}
	v.mode(at.Child("mode"), e.Mode, 0o1777)
}

// networkVolume checks the kinds that need no API server and no cloud.
func (v *validator) networkVolume(s *v1.VolumeSource, at *field.Path) {
	if n := s.NFS; n != nil {
		v.required(at.Child("nfs", "server"), n.Server)
		v.required(at.Child("nfs", "path"), n.Path)
		if n.Path != "" && !path.IsAbs(n.Path) {
			v.add(at.Child("nfs", "path"), "%s must begin with /", quote(n.Path))
		}
	}
	if i := s.ISCSI; i != nil {
		at := at.Child("iscsi")
		v.required(at.Child("targetPortal"), i.TargetPortal)
		v.lun(at.Child("lun"), i.Lun)
		v.iqn(at.Child("iqn"), i.IQN)
		if i.InitiatorName != nil {
			v.iqn(at.Child("initiatorName"), *i.InitiatorName)
		}
	}
	if f := s.FC; f != nil {
		at := at.Child("fc")
		if (len(f.TargetWWNs) == 0) == (len(f.WWIDs) == 0) {
			v.add(at, "must have either targetWWNs or wwids")
		}
		if len(f.TargetWWNs) > 0 && f.Lun == nil {
			v.add(at.Child("lun"), "is missing; targetWWNs need one")
		}
		if f.Lun != nil {
			v.lun(at.Child("lun"), *f.Lun)
		}
	}
	if f := s.FlexVolume; f != nil {
		v.required(at.Child("flexVolume", "driver"), f.Driver)
		v.noBacksteps(at.Child("flexVolume", "driver"), f.Driver)
	}
	if g := s.GitRepo; g != nil {
		v.required(at.Child("gitRepo", "repository"), g.Repository)
		v.descending(at.Child("gitRepo", "directory"), g.Directory)
	}
}

func (v *validator) required(at *field.Path, text string) {
	if text == "" {
		v.add(at, "is missing")
	}
}

func (v *validator) lun(at *field.Path, n int32) {
	if n < 0 || n > 255 {
		v.add(at, "%d is out of range; 0 to 255", n)
	}
}

func (v *validator) iqn(at *field.Path, name string) {
	known := slices.ContainsFunc([]string{"iqn.", "eui.", "naa."}, func(p string) bool { return strings.HasPrefix(name, p) })
	if !known || strings.ContainsAny(name, "/ \t\n\\") {
		v.add(at, "%s must begin with iqn., eui. or naa. and be without blanks and slashes", quote(name))
	}
}

func (v *validator) mode(at *field.Path, mode *int32, highest int32) {
	if mode != nil && (*mode < 0 || *mode > highest) {
		v.add(at, "%d (%#o) is out of range; 0 to %#o (in JSON, and in YAML without a leading 0, the number is decimal)", *mode, *mode, highest)
	}
}

// noBacksteps refuses .. as part of a path.
func (v *validator) noBacksteps(at *field.Path, p string) {
	if slices.Contains(strings.Split(p, "/"), "..") {
		v.add(at, "%s must not contain ..", quote(p))
	}
}

// descending refuses paths that lead out of where they start.
func (v *validator) descending(at *field.Path, p string) {
	if path.IsAbs(p) {
		v.add(at, "%s must not begin with /", quote(p))
	}
	v.noBacksteps(at, p)
}

// filePath checks the place of a file in a volume; names with .. in front are the writer's own.
func (v *validator) filePath(at *field.Path, p string) {
	v.required(at, p)
	v.descending(at, p)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") && p != ".." {
		v.add(at, "%s must not begin with ..", quote(p))
	}
}

func (v *validator) downwardFiles(items []v1.DownwardAPIVolumeFile, at *field.Path) {
	for i := range items {
		f, at := &items[i], at.Index(i)
		v.filePath(at.Child("path"), f.Path)
		v.mode(at.Child("mode"), f.Mode, 0o777)
		if (f.FieldRef == nil) == (f.ResourceFieldRef == nil) {
			v.add(at, "must have exactly one of fieldRef and resourceFieldRef")
		}
		if f.FieldRef != nil {
			v.fieldRef(f.FieldRef, at.Child("fieldRef"), fileFields)
		}
		if f.ResourceFieldRef != nil {
			v.resourceFieldRef(f.ResourceFieldRef, at.Child("resourceFieldRef"), true)
		}
	}
}

// projected checks the sources a pod from a file can have; the others are refused as references.
func (v *validator) projected(p *v1.ProjectedVolumeSource, at *field.Path) {
	v.mode(at.Child("defaultMode"), p.DefaultMode, 0o777)
	paths := map[string]bool{}
	for i, s := range p.Sources {
		at := at.Child("sources").Index(i)
		if n := count(s.Secret != nil, s.DownwardAPI != nil, s.ConfigMap != nil, s.ServiceAccountToken != nil, s.ClusterTrustBundle != nil, s.PodCertificate != nil); n != 1 {
			v.add(at, "must be of exactly one kind, but has %d", n)
		}
		if s.DownwardAPI == nil {
			continue
		}
		v.downwardFiles(s.DownwardAPI.Items, at.Child("downwardAPI", "items"))
		for j, f := range s.DownwardAPI.Items {
			if paths[f.Path] {
				v.add(at.Child("downwardAPI", "items").Index(j).Child("path"), "%s is the path of another file of this volume too", quote(f.Path))
			}
			paths[f.Path] = true
		}
	}
}

func (v *validator) mounts(c *v1.Container, at *field.Path) {
	paths := map[string]bool{}
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], at.Index(i)
		switch {
		case m.Name == "":
			v.add(at.Child("name"), "is missing")
		case v.volumes[m.Name] == nil:
			v.add(at.Child("name"), "%s is not a volume of this pod", quote(m.Name))
		}
		switch {
		case m.MountPath == "":
			v.add(at.Child("mountPath"), "is missing")
		case paths[m.MountPath]:
			v.add(at.Child("mountPath"), "%s is the place of another mount of this container too", quote(m.MountPath))
		}
		paths[m.MountPath] = true
		v.descending(at.Child("subPath"), m.SubPath)
		v.descending(at.Child("subPathExpr"), m.SubPathExpr)
		if m.SubPath != "" && m.SubPathExpr != "" {
			v.add(at.Child("subPathExpr"), "cannot stand beside subPath; remove one")
		}
		v.propagation(c, m, at)
		for j, o := range m.BindMountOptions {
			oneOf(v.report, at.Child("bindMountOptions").Index(j), v1.BindMountOption(o), v1.BindMountOptionNoExec, v1.BindMountOptionNoDev, v1.BindMountOptionNoSUID)
		}
	}
}

func (v *validator) propagation(c *v1.Container, m *v1.VolumeMount, at *field.Path) {
	mode := v1.MountPropagationNone
	if m.MountPropagation != nil {
		mode = *m.MountPropagation
		oneOf(v.report, at.Child("mountPropagation"), mode, v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
	}
	if mode == v1.MountPropagationBidirectional && !isTrue(privileged(c)) {
		v.add(at.Child("mountPropagation"), "Bidirectional works in privileged containers only")
	}
	if m.RecursiveReadOnly == nil {
		return
	}
	at = at.Child("recursiveReadOnly")
	oneOf(v.report, at, *m.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	if *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled && (!m.ReadOnly || mode != v1.MountPropagationNone) {
		v.add(at, "needs readOnly true and no mountPropagation")
	}
}
