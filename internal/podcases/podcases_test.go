package podcases

import (
	"context"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCasesAreDifferentPods(t *testing.T) {
	cases, err := All()
	if err != nil || len(cases) < 60 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	names := map[string]string{}
	for _, c := range cases {
		for _, name := range []string{c.Pod.Namespace + "/" + c.Pod.Name, string(c.Pod.UID)} {
			if other := names[name]; other != "" {
				t.Errorf("%s is in %s and %s", name, other, c.Name)
			}
			names[name] = c.Name
		}
	}
}

func TestText(t *testing.T) {
	r := new(Recorder)
	tell := func(q, a any) {
		t.Helper()
		if _, err := r.Intercept(t.Context(), q, nil, func(context.Context, any) (any, error) { return a, nil }); err != nil {
			t.Fatal(err)
		}
	}
	sandbox := &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Namespace: "n", Name: "p", Uid: "u"}, LogDirectory: "/tmp/1/logs"}
	container := func(name string, target string) *cri.CreateContainerRequest {
		return &cri.CreateContainerRequest{SandboxConfig: sandbox, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name}, Envs: []*cri.KeyValue{{Key: "B", Value: []byte("2")}, {Key: "A", Value: []byte("1")}},
			Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{TargetId: target}}},
		}}
	}
	tell(&cri.RunPodSandboxRequest{Config: sandbox}, &cri.RunPodSandboxResponse{PodSandboxId: "1"})
	tell(container("a", ""), &cri.CreateContainerResponse{ContainerId: "2"})
	tell(container("b", "2"), &cri.CreateContainerResponse{ContainerId: "3"})
	then := r.Moment()
	tell(container("a", "3"), &cri.CreateContainerResponse{ContainerId: "4"}) // again
	got, err := r.Text("n", "p", "/tmp/1", "ROOT")
	want := `--- # sandbox
config:
  logDirectory: ROOT/logs
  metadata:
    name: p
    namespace: "n"
    uid: u
--- # container a
config:
  envs:
  - A=1
  - B=2
  linux:
    securityContext:
      namespaceOptions: {}
  metadata:
    name: a
--- # container b
config:
  envs:
  - A=1
  - B=2
  linux:
    securityContext:
      namespaceOptions:
        targetId: id of a
  metadata:
    name: b
`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	if names := strings.Join(r.Containers("n", "p"), " "); names != "a b" || r.UID("n", "p") != "u" {
		t.Errorf("%s of %s", names, r.UID("n", "p"))
	}
	if all, later := r.Made("n", "p", 0), r.Made("n", "p", then); strings.Join(all, ", ") != "sandbox, container a, container b, container a" ||
		strings.Join(later, ", ") != "container a" || len(r.Made("n", "other", 0)) > 0 {
		t.Errorf("made %v, later %v", all, later)
	}
}
