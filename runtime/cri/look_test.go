package cri

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestAddressesOfASandbox(t *testing.T) {
	more := func(ips ...string) []*cri.PodIP {
		var list []*cri.PodIP
		for _, ip := range ips {
			list = append(list, &cri.PodIP{Ip: ip})
		}
		return list
	}
	for name, row := range map[string]struct {
		in    *cri.PodSandboxNetworkStatus
		known bool
		want  []string
	}{
		"nothing said is not known":        {nil, false, nil},
		"known to have none":               {&cri.PodSandboxNetworkStatus{}, true, nil},
		"first and additional in order":    {&cri.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: more("fd00::1")}, true, []string{"10.0.0.1", "fd00::1"}},
		"nonsense first makes none":        {&cri.PodSandboxNetworkStatus{Ip: "nonsense", AdditionalIps: more("fd00::1")}, true, nil},
		"nonsense additional makes none":   {&cri.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: more("fd00::g")}, true, nil},
		"an empty additional is nonsense":  {&cri.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: more("")}, true, nil},
		"no first, but an additional: one": {&cri.PodSandboxNetworkStatus{AdditionalIps: more("fd00::1")}, true, []string{"fd00::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := seenSandbox(&cri.PodSandboxStatus{Network: row.in})
			if !slices.Equal(b.IPs, row.want) || b.NetworkKnown != row.known {
				t.Errorf("got %q, known %v, want %q, %v", b.IPs, b.NetworkKnown, row.want, row.known)
			}
		})
	}
}

func TestSandboxIsReadBack(t *testing.T) {
	meta := &cri.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1234", Attempt: 2}
	want := runtime.Sandbox{
		PodRef: runtime.PodRef{Namespace: "default", Name: "web", UID: "1234"}, ID: "s1", Attempt: 2, Ready: true,
		Created: time.Unix(0, 5), Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Handler: "gvisor",
	}
	listed := listedSandbox(&cri.PodSandbox{
		Id: "s1", Metadata: meta, CreatedAt: 5, Labels: want.Labels, Annotations: want.Annotations, RuntimeHandler: "gvisor",
	})
	if d := cmp.Diff(want, listed); d != "" {
		t.Errorf("listed (-want +got):\n%s", d)
	}
	want.Ready, want.HostNetwork = false, true
	seen := seenSandbox(&cri.PodSandboxStatus{
		Id: "s1", Metadata: meta, CreatedAt: 5, Labels: want.Labels, Annotations: want.Annotations, RuntimeHandler: "gvisor",
		State: cri.PodSandboxState_SANDBOX_NOTREADY,
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}}},
	})
	if d := cmp.Diff(want, seen); d != "" {
		t.Errorf("seen (-want +got):\n%s", d)
	}
}

func TestContainerIsReadBack(t *testing.T) {
	labels := identity(nil, runtime.PodRef{Namespace: "default", Name: "web", UID: "1234"}, "main")
	want := runtime.Container{
		Pod: runtime.PodRef{Namespace: "default", Name: "web", UID: "1234"}, ID: "c1", Name: "main", SandboxID: "s1", Restarts: 3,
		Image: "example.com/web:1", ImageID: "sha256:1", State: runtime.Running, Labels: labels, Created: time.Unix(0, 5),
	}
	listed := listedContainer(&cri.Container{
		Id: "c1", PodSandboxId: "s1", Metadata: &cri.ContainerMetadata{Name: "main", Attempt: 3}, ImageId: "sha256:1",
		Image: &cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "example.com/web:1"}, ImageRef: "example.com/web@sha256:2",
		State: cri.ContainerState_CONTAINER_RUNNING, CreatedAt: 5, Labels: labels,
	})
	if d := cmp.Diff(want, listed); d != "" {
		t.Errorf("listed (-want +got):\n%s", d)
	}

	full := fullContainer()
	full.Namespaces.Users = nil // mappings of mounts are not read back
	config, err := containerConfig(full)
	if err != nil {
		t.Fatal(err)
	}
	want.SandboxID, want.ImageRef, want.State = "", "example.com/web@sha256:2", runtime.Exited
	want.Started, want.Finished, want.ExitCode, want.Reason, want.Message = time.Unix(0, 6), time.Unix(0, 7), 1, "Error", "oh"
	want.LogPath, want.Mounts, want.Resources = "/var/log/x", full.Mounts, &full.Resources
	want.Mounts[1].Propagation = "" // None and empty are one
	seen := seenContainer(&cri.ContainerStatus{
		Id: "c1", Metadata: &cri.ContainerMetadata{Name: "main", Attempt: 3}, ImageId: "sha256:1",
		Image: &cri.ImageSpec{Image: "example.com/web:1"}, ImageRef: "example.com/web@sha256:2",
		State: cri.ContainerState_CONTAINER_EXITED, CreatedAt: 5, StartedAt: 6, FinishedAt: 7, ExitCode: 1, Reason: "Error", Message: "oh",
		Labels: labels, LogPath: "/var/log/x", Mounts: config.GetMounts(),
		Resources: &cri.ContainerResources{Linux: config.GetLinux().GetResources()},
	})
	if d := cmp.Diff(want, seen); d != "" {
		t.Errorf("seen (-want +got):\n%s", d)
	}
}

func TestTimesAndCodesFollowTheState(t *testing.T) {
	for state, row := range map[cri.ContainerState]struct{ started, finished bool }{
		cri.ContainerState_CONTAINER_CREATED: {false, false},
		cri.ContainerState_CONTAINER_RUNNING: {true, false},
		cri.ContainerState_CONTAINER_UNKNOWN: {true, false},
		cri.ContainerState_CONTAINER_EXITED:  {true, true},
	} {
		c := seenContainer(&cri.ContainerStatus{State: state, StartedAt: 6, FinishedAt: 7, ExitCode: 1, Reason: "r", Message: "m"})
		if !c.Started.IsZero() != row.started || !c.Finished.IsZero() != row.finished ||
			(c.ExitCode == 1) != row.finished || (c.Reason == "r") != row.finished || (c.Message == "m") != row.finished {
			t.Errorf("%v: %+v", state, c)
		}
	}
}

func TestImageIDFallsBackToTheImage(t *testing.T) {
	c := &cri.Container{Image: &cri.ImageSpec{Image: "sha256:1"}}
	if got := listedContainer(c).ImageID; got != "sha256:1" {
		t.Errorf("listed: %q", got)
	}
	if got := seenContainer(&cri.ContainerStatus{Image: c.GetImage()}).ImageID; got != "sha256:1" {
		t.Errorf("seen: %q", got)
	}
}

func TestImageIsReadBack(t *testing.T) {
	got := seenImage(&cri.Image{
		Id: "sha256:1", RepoTags: []string{"a:1"}, RepoDigests: []string{"a@sha256:2"}, Size: math.MaxUint64,
		Uid: &cri.Int64Value{Value: 0}, Username: "u", Pinned: true, Spec: &cri.ImageSpec{RuntimeHandler: "gvisor"},
	})
	want := runtime.Image{
		ID: "sha256:1", Tags: []string{"a:1"}, Digests: []string{"a@sha256:2"}, Size: math.MaxInt64,
		UID: new(int64(0)), User: "u", Pinned: true, Handler: "gvisor",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestTokenIsAnIdentityToken(t *testing.T) {
	got := auth(&runtime.Auth{Username: "u", Password: "p", Server: "s", Token: "t"})
	want := &cri.AuthConfig{Username: "u", Password: "p", ServerAddress: "s", IdentityToken: "t"}
	if !proto.Equal(got, want) || auth(nil) != nil {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestConditionThatIsNotReportedIsNotMet(t *testing.T) {
	if c := condition(nil, cri.RuntimeReady); c.OK || c.Reason == "" {
		t.Errorf("%+v", c)
	}
}

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60, math.MaxInt64: math.MaxInt64/int64(time.Second) + 1,
	} {
		if got := seconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}

func TestStreamAddressIsNotShownInErrors(t *testing.T) {
	for _, s := range []string{"", "/exec/secret", "http://[secret"} {
		if u, err := address("open exec", s, nil); err == nil || err.Error() != "open exec: the runtime's answer is no address" {
			t.Errorf("%q: %v, %v", s, u, err)
		}
	}
	u, err := address("open exec", "http://127.0.0.1:1234/exec/t", nil)
	if err != nil || u.Host != "127.0.0.1:1234" || u.Path != "/exec/t" {
		t.Errorf("%v, %v", u, err)
	}
}

func FuzzAnswersAreReadWithoutPanic(f *testing.F) {
	f.Add([]byte{}, []byte{}, "10.0.0.1")
	f.Fuzz(func(_ *testing.T, sandbox, container []byte, ip string) {
		var b cri.PodSandboxStatus
		var c cri.ContainerStatus
		if proto.Unmarshal(sandbox, &b) == nil {
			seenSandbox(&b)
		}
		if proto.Unmarshal(container, &c) == nil {
			seenContainer(&c)
		}
		addresses(&cri.PodSandboxNetworkStatus{Ip: ip})
		_, _ = address("look", ip, nil)
	})
}
