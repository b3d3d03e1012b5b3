package podruntime

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// secured is a pod of one container with what is said of its security by pod and by container.
func secured(ofPod *v1.PodSecurityContext, ofContainer *v1.SecurityContext) *v1.Pod {
	p := pod("")
	p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = ofPod, ofContainer
	return p
}

func TestWhoAContainerRunsAs(t *testing.T) {
	type sc = v1.SecurityContext
	type psc = v1.PodSecurityContext
	number, name, root := runtime.Image{UID: new(int64(7))}, runtime.Image{User: "www"}, runtime.Image{UID: new(int64(0))}
	for _, row := range []struct {
		rule string
		pod  *v1.Pod
		img  runtime.Image
		uid  int64 // -1: none
		name string
		bad  string
	}{
		{"the image's number", secured(nil, nil), number, 7, "", ""},
		{"the image's name", secured(nil, nil), name, -1, "www", ""},
		{"root, when the image says nothing", secured(nil, nil), runtime.Image{}, 0, "", ""},
		{"the pod's", secured(&psc{RunAsUser: new(int64(5))}, nil), number, 5, "", ""},
		{"the container's before the pod's", secured(&psc{RunAsUser: new(int64(5))}, &sc{RunAsUser: new(int64(6))}), name, 6, "", ""},
		{"not root, and it is not", secured(&psc{RunAsNonRoot: new(true)}, nil), number, 7, "", ""},
		{"not root by the pod, but the container may", secured(&psc{RunAsNonRoot: new(true)}, &sc{RunAsNonRoot: new(false)}), root, 0, "", ""},
		{"not root, but the image is", secured(&psc{RunAsNonRoot: new(true)}, nil), root, 0, "", "container has runAsNonRoot and image will run as root"},
		{"not root, but the image says nothing", secured(nil, &sc{RunAsNonRoot: new(true)}), runtime.Image{}, 0, "", "container has runAsNonRoot and image will run as root"},
		{"not root, but a number that may be cut down to it", secured(nil, &sc{RunAsNonRoot: new(true)}), runtime.Image{UID: new(int64(1 << 32))}, 0, "", "image has an invalid user id (4294967296)"},
		{"not root, but a number that is none", secured(nil, &sc{RunAsNonRoot: new(true)}), runtime.Image{UID: new(int64(-1000))}, 0, "", "image has an invalid user id (-1000)"},
		{"not root, and the last user there is", secured(nil, &sc{RunAsNonRoot: new(true)}), runtime.Image{UID: new(int64(1<<31 - 1))}, 1<<31 - 1, "", ""},
		{"not root, but a name", secured(nil, &sc{RunAsNonRoot: new(true)}), name, 0, "", "image has non-numeric user (www), cannot verify user is non-root"},
		{"not root, but 0 is asked for", secured(&psc{RunAsNonRoot: new(true), RunAsUser: new(int64(0))}, nil), number, 0, "", "container's runAsUser breaks non-root policy"},
	} {
		got, err := newNode(t).security(row.pod, &row.pod.Spec.Containers[0], row.img, nil)
		if row.bad != "" {
			if err == nil || !strings.Contains(err.Error(), row.bad) || !strings.Contains(err.Error(), `(pod: "web_shop(u-1)", container: a)`) {
				t.Errorf("%s: %v", row.rule, err)
			}
			continue
		}
		if err != nil || got.Username != row.name || (got.UID == nil) != (row.uid < 0) || got.UID != nil && *got.UID != row.uid {
			t.Errorf("%s: %v %q, %v", row.rule, got.UID, got.Username, err)
		}
	}
}

func TestGroups(t *testing.T) {
	ps := &v1.PodSecurityContext{FSGroup: new(int64(1)), SupplementalGroups: []int64{3, 2}}
	volumes := map[string]runtime.Volume{"a": {ExtraGroups: []int64{9, 8}}, "b": {ExtraGroups: []int64{8}}}
	p := secured(ps, nil)
	of, err := newNode(t).security(p, &p.Spec.Containers[0], runtime.Image{}, volumes)
	if diff := cmp.Diff([]int64{1, 3, 2, 8, 9}, of.Groups); diff != "" || err != nil {
		t.Errorf("container: %v\n%s", err, diff)
	}
	sandbox, err := sandboxSecurity(p, volumes)
	if diff := cmp.Diff([]int64{1, 8, 9, 3, 2}, sandbox.Groups); diff != "" || err != nil {
		t.Errorf("sandbox: %v\n%s", err, diff)
	}
	strict := v1.SupplementalGroupsPolicyStrict
	ps.SupplementalGroupsPolicy = &strict
	of, errOf := newNode(t).security(p, &p.Spec.Containers[0], runtime.Image{}, nil)
	sandbox, errSandbox := sandboxSecurity(p, nil)
	if of.GroupsPolicy != "Strict" || sandbox.GroupsPolicy != "Strict" || errOf != nil || errSandbox != nil {
		t.Errorf("%q, %q, %v, %v", of.GroupsPolicy, sandbox.GroupsPolicy, errOf, errSandbox)
	}
	other := v1.SupplementalGroupsPolicy("Loose")
	ps.SupplementalGroupsPolicy = &other
	if _, err := sandboxSecurity(p, nil); err == nil || err.Error() != "unsupported supplementalGroupsPolicy: Loose" {
		t.Errorf("a policy nobody knows: %v", err)
	}
}

func TestSeccomp(t *testing.T) {
	file := func(name string) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &name}
	}
	of := func(kind v1.SeccompProfileType) *v1.SeccompProfile { return &v1.SeccompProfile{Type: kind} }
	localhost := func(path string) runtime.Profile { return runtime.Profile{Type: runtime.Localhost, Path: path} }
	for _, row := range []struct {
		rule        string
		byDefault   bool
		ofPod, ofIt *v1.SeccompProfile
		want        runtime.Profile
		bad         string
	}{
		{"nothing said is nothing", false, nil, nil, runtime.Profile{Type: runtime.Unconfined}, ""},
		{"unless the node says otherwise", true, nil, nil, runtime.Profile{Type: runtime.RuntimeDefault}, ""},
		{"unconfined stays that", true, nil, of(v1.SeccompProfileTypeUnconfined), runtime.Profile{Type: runtime.Unconfined}, ""},
		{"the pod's", false, of(v1.SeccompProfileTypeRuntimeDefault), nil, runtime.Profile{Type: runtime.RuntimeDefault}, ""},
		{"the container's before the pod's", false, of(v1.SeccompProfileTypeRuntimeDefault), file("a/b.json"), localhost("ROOT/seccomp/a/b.json"), ""},
		{"no file leads out of the directory", false, nil, file("../../etc/x.json"), localhost("ROOT/seccomp/etc/x.json"), ""},
		{"a file without a name", false, file(""), nil, runtime.Profile{}, "localhostProfile must be set"},
		{"a file nobody names", false, nil, of(v1.SeccompProfileTypeLocalhost), runtime.Profile{}, "localhostProfile must be set"},
	} {
		n := newNode(t, func(c *Config) { c.SeccompDefault = row.byDefault })
		row.want.Path = strings.Replace(row.want.Path, "ROOT", n.cfg.Root, 1)
		p := secured(&v1.PodSecurityContext{SeccompProfile: row.ofPod}, &v1.SecurityContext{SeccompProfile: row.ofIt})
		got, err := n.security(p, &p.Spec.Containers[0], runtime.Image{}, nil)
		if row.bad != "" {
			if err == nil || !strings.Contains(err.Error(), row.bad) {
				t.Errorf("%s: %v", row.rule, err)
			}
			continue
		}
		if err != nil || got.Seccomp != row.want {
			t.Errorf("%s: %+v, %v", row.rule, got.Seccomp, err)
		}
	}
}

func TestAppArmor(t *testing.T) {
	of := func(kind v1.AppArmorProfileType, name ...string) *v1.AppArmorProfile {
		p := &v1.AppArmorProfile{Type: kind}
		if len(name) > 0 {
			p.LocalhostProfile = &name[0]
		}
		return p
	}
	def, none := runtime.Profile{Type: runtime.RuntimeDefault}, runtime.Profile{Type: runtime.Unconfined}
	for _, row := range []struct {
		rule        string
		ofPod, ofIt *v1.AppArmorProfile
		annotation  string
		want        runtime.Profile
		bad         string
	}{
		{"nothing said is the engine's affair", nil, nil, "", runtime.Profile{}, ""},
		{"the pod's", of(v1.AppArmorProfileTypeRuntimeDefault), nil, "", def, ""},
		{"the annotation before the pod's", of(v1.AppArmorProfileTypeRuntimeDefault), nil, "unconfined", none, ""},
		{"the container's before the annotation", nil, of(v1.AppArmorProfileTypeUnconfined), "runtime/default", none, ""},
		{"a profile by name", nil, of(v1.AppArmorProfileTypeLocalhost, "mine"), "", runtime.Profile{Type: runtime.Localhost, Path: "mine"}, ""},
		{"and by annotation", nil, nil, "localhost/mine", runtime.Profile{Type: runtime.Localhost, Path: "mine"}, ""},
		{"the default by annotation", nil, nil, "runtime/default", def, ""},
		{"an annotation nobody knows", of(v1.AppArmorProfileTypeRuntimeDefault), nil, "what", def, ""},
		{"a profile without a name", nil, of(v1.AppArmorProfileTypeLocalhost), "", runtime.Profile{}, "missing localhost apparmor profile name"},
		{"a kind nobody knows", of("Own"), nil, "", runtime.Profile{}, `unknown apparmor profile type: "Own"`},
	} {
		p := secured(&v1.PodSecurityContext{AppArmorProfile: row.ofPod}, &v1.SecurityContext{AppArmorProfile: row.ofIt})
		if row.annotation != "" {
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/a": row.annotation}
		}
		got, err := newNode(t).security(p, &p.Spec.Containers[0], runtime.Image{}, nil)
		if row.bad != "" {
			if err == nil || err.Error() != row.bad {
				t.Errorf("%s: %v", row.rule, err)
			}
			continue
		}
		if err != nil || got.AppArmor != row.want {
			t.Errorf("%s: %+v, %v", row.rule, got.AppArmor, err)
		}
	}
}

func TestRightsOfAContainer(t *testing.T) {
	unmasked := v1.UnmaskedProcMount
	p := secured(nil, &v1.SecurityContext{
		Privileged: new(true), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false), ProcMount: &unmasked,
		Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}}, SELinuxOptions: &v1.SELinuxOptions{Level: "s0"},
	})
	n := newNode(t, func(c *Config) { c.Kernel.Masked = []string{"/sys/x"} })
	got, err := n.security(p, &p.Spec.Containers[0], runtime.Image{}, nil)
	want := runtime.Security{
		UID: new(int64(0)), Privileged: true, ReadOnlyRoot: true, NoNewPrivileges: true, AddCaps: []string{"NET_ADMIN"}, DropCaps: []string{"ALL"},
		Seccomp: runtime.Profile{Type: runtime.Unconfined}, SELinux: &runtime.SELinux{Level: "s0"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("all of them: %v\n%s", err, diff)
	}
	p = secured(&v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Type: "t"}}, nil)
	got, err = n.security(p, &p.Spec.Containers[0], runtime.Image{}, nil)
	want = runtime.Security{
		UID: new(int64(0)), Seccomp: runtime.Profile{Type: runtime.Unconfined}, SELinux: &runtime.SELinux{Type: "t"},
		MaskedPaths: append(maskedPaths(), "/sys/x"), ReadonlyPaths: readonlyPaths(),
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("none of them: %v\n%s", err, diff)
	}
}
