package cri

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var update = flag.Bool("update", false, "write the golden files anew; the diff is the review")

// fullSandbox and fullContainer set every field there is.
func fullSandbox() *runtime.SandboxConfig {
	return &runtime.SandboxConfig{
		Pod:     runtime.PodRef{Namespace: "default", Name: "web", UID: "1234"},
		Attempt: 2, Hostname: "web", LogDir: "/var/log/pods/default_web_1234",
		DNS:   &runtime.DNS{Servers: []string{"10.0.0.10"}, Searches: []string{"svc.cluster.local"}, Options: []string{"ndots:5"}},
		Ports: []runtime.PortMapping{{Protocol: "UDP", ContainerPort: 53, HostPort: 5353, HostIP: "127.0.0.1"}, {ContainerPort: 80}},
		Namespaces: runtime.Namespaces{
			HostIPC: true, SharePID: true, Users: []runtime.IDMapping{{Container: 0, Host: 65536, Length: 65536}},
		},
		Security:     fullSecurity(),
		Labels:       map[string]string{"app": "web", runtime.LabelPodUID: "forged"},
		Annotations:  map[string]string{"example.com/a": "b"},
		Sysctls:      map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"},
		CgroupParent: "/kubepods/pod1234",
		Resources:    fullResources(), Overhead: runtime.Resources{CPUShares: 10},
	}
}

func fullContainer() *runtime.ContainerConfig {
	return &runtime.ContainerConfig{
		Pod: runtime.PodRef{Namespace: "default", Name: "web", UID: "1234"}, Name: "main", Attempt: 3,
		Image: "sha256:1", UserImage: "example.com/web:1",
		Command: []string{"serve"}, Args: []string{"-p", "80"}, Dir: "/srv",
		Env: []runtime.Env{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}},
		Mounts: []runtime.Mount{
			{HostPath: "/h", ContainerPath: "/c", ReadOnly: true, Recursive: true, Relabel: true, Propagation: "HostToContainer"},
			{ContainerPath: "/img", Image: "sha256:2", SubPath: "data", Propagation: "None"},
		},
		Devices: []runtime.Device{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "rw"}},
		CDI:     []string{"vendor.com/gpu=0"},
		Labels:  map[string]string{"tier": "front", runtime.LabelContainerName: "forged"},
		Annotations: map[string]string{
			runtime.AnnotationHash: "1a2b", runtime.AnnotationRestartCount: "3",
		},
		LogPath: "main/3.log", Stdin: true, StdinOnce: true, TTY: true, StopSignal: "SIGRTMIN+3",
		Resources:  fullResources(),
		Namespaces: runtime.Namespaces{HostNetwork: true, TargetPID: "c1", Users: []runtime.IDMapping{{Host: 65536, Length: 65536}}},
		Security:   fullSecurity(),
	}
}

func fullSecurity() runtime.Security {
	return runtime.Security{
		UID: new(int64(1000)), GID: new(int64(0)), Username: "not used beside a UID", Groups: []int64{7, 8}, GroupsPolicy: "Strict",
		Privileged: true, ReadOnlyRoot: true, NoNewPrivileges: true, AddCaps: []string{"NET_ADMIN"}, DropCaps: []string{"ALL"},
		Seccomp:     runtime.Profile{Type: runtime.Localhost, Path: "/var/lib/kubelet/seccomp/p.json"},
		AppArmor:    runtime.Profile{Type: runtime.Localhost, Path: "strict"},
		SELinux:     &runtime.SELinux{User: "u", Role: "r", Type: "t", Level: "s0:c1,c2"},
		MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
	}
}

func fullResources() runtime.Resources {
	return runtime.Resources{
		CPUShares: 512, CPUQuota: -1, CPUPeriod: 100000, Memory: 1 << 30, MemorySwap: 1 << 31, OOMScoreAdj: -997,
		CPUs: "0-3", Mems: "0", Hugepages: map[string]uint64{"2MB": 4, "1GB": 0},
		Unified: map[string]string{"memory.oom.group": "1"},
	}
}

func TestWholeConfigsReachTheRuntime(t *testing.T) {
	container, err := containerConfig(fullContainer())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "sandbox.json", sandboxConfig(fullSandbox()))
	golden(t, "container.json", container)
}

func TestSmallestConfigsSayOnlyWhatTheyMust(t *testing.T) {
	pod := runtime.PodRef{Namespace: "default", Name: "web", UID: "1234"}
	container, err := containerConfig(&runtime.ContainerConfig{Pod: pod, Name: "main", Image: "sha256:1"})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "smallest_sandbox.json", sandboxConfig(&runtime.SandboxConfig{Pod: pod}))
	golden(t, "smallest_container.json", container)
}

// golden compares a message with a file of testdata.
func golden(t *testing.T, name string, m proto.Message) {
	t.Helper()
	compact, err := protojson.Marshal(m) // its white space differs from build to build
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, compact, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s is now\n%s", path, got.Bytes())
	}
}

func TestNamespaces(t *testing.T) {
	const pod, container, node, target = cri.NamespaceMode_POD, cri.NamespaceMode_CONTAINER, cri.NamespaceMode_NODE, cri.NamespaceMode_TARGET
	type modes struct{ network, pid, ipc, users cri.NamespaceMode }
	for name, row := range map[string]struct {
		in   runtime.Namespaces
		want modes
	}{
		"zero is a pod's default":            {runtime.Namespaces{}, modes{pod, container, pod, node}},
		"network of the host":                {runtime.Namespaces{HostNetwork: true}, modes{node, container, pod, node}},
		"IPC of the host":                    {runtime.Namespaces{HostIPC: true}, modes{pod, container, node, node}},
		"processes of the host":              {runtime.Namespaces{HostPID: true}, modes{pod, node, pod, node}},
		"the host's go before shared ones":   {runtime.Namespaces{HostPID: true, SharePID: true}, modes{pod, node, pod, node}},
		"processes shared in the pod":        {runtime.Namespaces{SharePID: true}, modes{pod, pod, pod, node}},
		"shared ones go before another's":    {runtime.Namespaces{SharePID: true, TargetPID: "c"}, modes{pod, pod, pod, node}},
		"processes of another container":     {runtime.Namespaces{TargetPID: "c"}, modes{pod, target, pod, node}},
		"users of its own when there is map": {runtime.Namespaces{Users: []runtime.IDMapping{{Length: 1}}}, modes{pod, container, pod, pod}},
	} {
		t.Run(name, func(t *testing.T) {
			o := namespaces(row.in)
			if got := (modes{o.GetNetwork(), o.GetPid(), o.GetIpc(), o.GetUsernsOptions().GetMode()}); got != row.want {
				t.Errorf("got %v, want %v", got, row.want)
			}
			if (o.GetTargetId() != "") != (o.GetPid() == target) {
				t.Errorf("target %q with mode %v", o.GetTargetId(), o.GetPid())
			}
		})
	}
}

func TestProfiles(t *testing.T) {
	for _, row := range []struct {
		in       runtime.Profile
		want     *cri.SecurityProfile
		appArmor string
	}{
		{runtime.Profile{}, nil, ""},
		{runtime.Profile{Type: runtime.RuntimeDefault}, &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}, "runtime/default"},
		{runtime.Profile{Type: runtime.Unconfined}, &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}, "unconfined"},
		{
			runtime.Profile{Type: runtime.Localhost, Path: "p"},
			&cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "p"}, "localhost/p",
		},
	} {
		if got := profile(row.in); !proto.Equal(got, row.want) {
			t.Errorf("%+v: got %v, want %v", row.in, got, row.want)
		}
		if got := appArmorName(row.in); got != row.appArmor {
			t.Errorf("%+v: got %q, want %q", row.in, got, row.appArmor)
		}
	}
}

func TestStopSignals(t *testing.T) {
	for name, want := range map[string]cri.Signal{
		"":            cri.Signal_SIGNAL_RUNTIME_DEFAULT,
		"SIGTERM":     cri.Signal_SIGNAL_SIGTERM,
		"SIGRTMIN":    cri.Signal_SIGNAL_SIGRTMIN,
		"SIGRTMIN+15": cri.Signal_SIGNAL_SIGRTMINPLUS15,
		"SIGRTMAX-14": cri.Signal_SIGNAL_SIGRTMAXMINUS14,
	} {
		if got, err := stopSignal(name); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"TERM", "15", "sigterm", "RUNTIME_DEFAULT", "SIGRTMIN+99"} {
		if got, err := stopSignal(name); err == nil {
			t.Errorf("%q: %v, want an error", name, got)
		}
	}
}

func TestWhatCannotBeSaidIsAnError(t *testing.T) {
	for name, c := range map[string]*runtime.ContainerConfig{
		"signal":      {StopSignal: "SIGNONE"},
		"propagation": {Mounts: []runtime.Mount{{ContainerPath: "/c", Propagation: "Sideways"}}},
	} {
		if _, err := containerConfig(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNameOfTheUserIsUsedWithoutItsNumber(t *testing.T) {
	if got := containerSecurity(runtime.Security{Username: "www"}, runtime.Namespaces{}); got.GetRunAsUsername() != "www" || got.GetRunAsUser() != nil {
		t.Errorf("%v", got)
	}
}
