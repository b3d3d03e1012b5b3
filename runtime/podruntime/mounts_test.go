package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// mounting is what is made for the one container of a pod, on an engine whose handler micro can do nothing.
func mounting(p *v1.Pod, handler string, volumes map[string]runtime.Volume) *making {
	return &making{
		pod: p, spec: &p.Spec.Containers[0], config: &runtime.SandboxConfig{Handler: handler},
		in: runtime.SyncInput{Volumes: volumes},
	}
}

func TestRecursiveReadOnly(t *testing.T) {
	enabled, possible, disabled, odd := v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyMode("Maybe")
	both, none := v1.MountPropagationBidirectional, v1.MountPropagationNone
	for _, row := range []struct {
		rule    string
		vm      v1.VolumeMount
		handler string
		want    bool
		bad     string
	}{
		{"nothing said", v1.VolumeMount{ReadOnly: true}, "", false, ""},
		{"disabled", v1.VolumeMount{RecursiveReadOnly: &disabled}, "", false, ""},
		{"enabled", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled, MountPropagation: &none}, "", true, ""},
		{"if possible, and it is", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &possible}, "", true, ""},
		{"if possible, and it is not", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &possible}, "micro", false, ""},
		{"enabled, but not possible", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled}, "micro", false, "is not supported by the runtime"},
		{"of a mount that is written", v1.VolumeMount{RecursiveReadOnly: &possible}, "", false, "it is not read-only"},
		{"of one that shows mounts to the host", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled, MountPropagation: &both}, "", false, `is not compatible with propagation "Bidirectional"`},
		{"a mode nobody knows", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &odd}, "", false, `unknown recursive read-only mode "Maybe"`},
	} {
		row.vm.Name, row.vm.MountPath = "v", "/v"
		p := pod("")
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{row.vm}
		n := newNode(t)
		got, err := n.volumeMount(t.Context(), mounting(p, row.handler, map[string]runtime.Volume{"v": {Path: "/p"}}), 0, new(environ))
		if row.bad != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "failed to resolve recursive read-only mode: ") || !strings.HasSuffix(err.Error(), row.bad) {
				t.Errorf("%s: %v", row.rule, err)
			}
			continue
		}
		if err != nil || got.Recursive != row.want {
			t.Errorf("%s: %v, %v", row.rule, got.Recursive, err)
		}
	}
}

func TestSubpathsThatNeedNoLook(t *testing.T) {
	env := new(environ)
	env.set("NAME", "me")
	env.set("EMPTY", "")
	env.set("UP", "..")
	env.set("ROOT", "/etc")
	for _, row := range []struct {
		path, expression, want, bad string
	}{
		{path: "a/b", want: "a/b"},
		{path: "a/./b", want: "a/./b"},
		{path: "a..b/..c", want: "a..b/..c"},
		{path: "$(NAME)", want: "$(NAME)"},
		{path: "/a", bad: "error SubPath `/a` must not be an absolute path"},
		{path: "..", bad: "unable to provision SubPath `..`: must not contain '..'"},
		{path: "a/../b", bad: "unable to provision SubPath `a/../b`: must not contain '..'"},
		{expression: "x/$(NAME)/$$(NAME)", want: "x/me/$(NAME)"},
		{expression: "$(NONE)/$(EMPTY)/$(NONE)", bad: "missing value for EMPTY, NONE"},
		{expression: "$()", bad: "missing value for "},
		{expression: "$(EMPTY)", bad: "missing value for EMPTY"},
		{expression: "$(UP)/x", bad: "unable to provision SubPath `../x`: must not contain '..'"},
		{expression: "$(ROOT)", bad: "error SubPath `/etc` must not be an absolute path"},
	} {
		got, err := subpath(&v1.VolumeMount{SubPath: row.path, SubPathExpr: row.expression}, env)
		switch {
		case row.bad == "" && (err != nil || got != row.want):
			t.Errorf("%s%s: %q, %v", row.path, row.expression, got, err)
		case row.bad != "" && (err == nil || err.Error() != row.bad):
			t.Errorf("%s%s: %v", row.path, row.expression, err)
		}
	}
}

func TestDevices(t *testing.T) {
	p := pod("")
	p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "rw", DevicePath: "/dev/a"}, {Name: "ro", DevicePath: "/dev/b"}}
	n := newNode(t)
	volumes := map[string]runtime.Volume{"rw": {Device: "/dev/sda"}, "ro": {Device: "/dev/sdb", ReadOnly: true}}
	_, devices, err := n.mounts(t.Context(), mounting(p, "", volumes), new(environ), nil)
	want := []runtime.Device{{HostPath: "/dev/sda", ContainerPath: "/dev/a", Permissions: "mrw"}, {HostPath: "/dev/sdb", ContainerPath: "/dev/b", Permissions: "r"}}
	if err != nil || !slices.Equal(devices, want) {
		t.Errorf("%+v, %v", devices, err)
	}
	for name, volumes := range map[string]map[string]runtime.Volume{
		"not there": {}, "no device": {"rw": {Path: "/p"}},
	} {
		if _, _, err := n.mounts(t.Context(), mounting(p, "", volumes), new(environ), nil); err == nil || !strings.Contains(err.Error(), `cannot find volume "rw"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLabelsOnlyWhereTheKernelHasThem(t *testing.T) {
	p := pod("")
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "host", MountPath: "/h"}}
	volumes := map[string]runtime.Volume{"v": {Path: "/p", Relabel: true}, "host": {Path: "/etc"}}
	for _, has := range []bool{false, true} {
		n := newNode(t, func(c *Config) { c.Kernel.SELinux = has })
		if err := n.files.makePod(p.UID); err != nil {
			t.Fatal(err)
		}
		mounts, _, err := n.mounts(t.Context(), mounting(p, "", volumes), new(environ), []string{"192.0.2.1"})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mounts {
			if want := has && m.ContainerPath != "/h"; m.Relabel != want {
				t.Errorf("labels %v: %+v", has, m)
			}
		}
	}
}

// pulls notes which images are asked for, and has some of them.
type pulls struct {
	asked []string
	fails string
}

func (p *pulls) Ensure(_ context.Context, _ *v1.Pod, c *v1.Container, about observe.Ref) (runtime.Image, func(), error) {
	p.asked = append(p.asked, c.Image+" for "+about.FieldPath)
	if c.Image == p.fails {
		return runtime.Image{}, nil, waiting("ErrImagePull", context.DeadlineExceeded)
	}
	return runtime.Image{ID: "sha256:1"}, func() {}, nil
}

func TestImageVolumesThatNobodyMounts(t *testing.T) {
	for _, fails := range []string{"", "idle:1", "used:1"} {
		images := &pulls{fails: fails}
		n := newNode(t, func(c *Config) { c.Images = images })
		p := pod(polite, polite)
		p.Spec.Volumes = []v1.Volume{
			{Name: "idle", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "idle:1"}}},
			{Name: "used", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "used:1"}}},
		}
		p.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "used", MountPath: "/u"}}
		in := runtime.SyncInput{Volumes: map[string]runtime.Volume{"used": {Image: "used:1", ReadOnly: true}}}
		for range 6 {
			in.Seen = n.look(p)
			if _, err := n.Sync(t.Context(), p, in); err != nil {
				t.Fatal(err)
			}
		}
		run := len(n.look(p).Containers)
		if want := map[string]int{"": 2, "idle:1": 2, "used:1": 1}[fails]; run != want {
			t.Errorf("%q fails: %d containers", fails, run)
		}
		if got := strings.Join(images.asked[:2], ", "); got != "busybox:1 for spec.containers{a}, idle:1 for " {
			t.Errorf("%q fails: asked for %s", fails, got)
		}
		if !slices.Contains(images.asked, "used:1 for spec.containers{b}") || slices.Contains(images.asked, "used:1 for spec.containers{a}") {
			t.Errorf("%q fails: asked for %s", fails, images.asked)
		}
	}
}

// paths is a Subpaths that binds nothing.
type paths struct{ done int }

func (p *paths) Subpath(_ context.Context, _ types.UID, volume, container string, index int, path string) (string, func(), error) {
	return fmt.Sprintf("/sub/%s/%s/%d/%s", volume, container, index, path), func() { p.done++ }, nil
}

func TestVolumeMounts(t *testing.T) {
	sub := &paths{}
	n := newNode(t, func(c *Config) { c.Subpaths = sub })
	p := pod("sleep 100")
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "NAME", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}, {Name: "EMPTY"}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/data", ReadOnly: true},
		{Name: "data", MountPath: "/part", SubPathExpr: "logs/$(NAME)"},
		{Name: "img", MountPath: "/img", SubPath: "bin"},
	}
	in := runtime.SyncInput{Volumes: map[string]runtime.Volume{"data": {Path: "/host/data"}, "img": {Image: "tools:1"}}}
	for range 2 {
		in.Seen = n.look(p)
		if _, err := n.Sync(t.Context(), p, in); err != nil {
			t.Fatal(err)
		}
	}
	want := []runtime.Mount{
		{HostPath: "/host/data", ContainerPath: "/data", ReadOnly: true},
		{HostPath: "/sub/data/a/1/logs/web", ContainerPath: "/part"},
		{Image: "tools:1", SubPath: "bin", ContainerPath: "/img"},
	}
	if diff := cmp.Diff(want, n.look(p).Newest("a").Mounts[:3]); diff != "" {
		t.Error(diff)
	}
	if sub.done != 1 {
		t.Errorf("done was called %d times", sub.done)
	}

	for path, want := range map[string]string{"$(EMPTY)": "missing value for EMPTY", "$(NONE)": "missing value for NONE"} {
		p := p.DeepCopy()
		p.UID = types.UID("u-" + path[2:4])
		p.Spec.Containers[0].VolumeMounts[1].SubPathExpr = path
		in.Seen = n.look(p)
		if _, err := n.Sync(t.Context(), p, in); err != nil {
			t.Fatal(err)
		}
		if w := n.look(p).Waiting["a"]; !strings.Contains(w.Message, want) {
			t.Errorf("%s: %+v", path, w)
		}
	}
}

// A volume whose place went away keeps only containers that use it from being made.
func TestAContainerWaitsForItsVolumeAlone(t *testing.T) {
	n := newNode(t)
	p := pod("sleep 100", "sleep 100")
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	p.Spec.Volumes = []v1.Volume{{Name: "data"}}
	gone := errors.New("it is gone")
	in := runtime.SyncInput{Volumes: map[string]runtime.Volume{"data": {Path: "/host/data", Check: func() error { return gone }}}}
	for range 3 {
		in.Seen = n.look(p)
		if _, err := n.Sync(t.Context(), p, in); err != nil {
			t.Fatal(err)
		}
	}
	seen := n.look(p)
	w := seen.Waiting[p.Spec.Containers[0].Name]
	if w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, `volume "data" of container`) || !strings.Contains(w.Message, "it is gone") {
		t.Errorf("%+v", w)
	}
	if c := seen.Newest(p.Spec.Containers[1].Name); c == nil || c.State != runtime.Running {
		t.Errorf("the other container waits, too: %+v", c)
	}
}

// An agent with a strict umask had users in containers not read /etc/hosts, and each start of a container had the others of its
// pod read an empty one for a moment.
func TestHostsAreReadByEveryUserAtEveryMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc-hosts")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil { // as a umask of 077 makes it
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		content string
		written bool
	}{{"one", false}, {"two", true}} {
		if err := writeShared(path, []byte(row.content)); err != nil {
			t.Fatal(err)
		}
		has, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(has) != row.content || info.Mode() != 0o644 || info.ModTime().Equal(past) == row.written {
			t.Errorf("%s: %q, %v, of %v, %v", row.content, has, info.Mode(), info.ModTime(), err)
		}
	}
}
