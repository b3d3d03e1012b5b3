package podruntime

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// asked is an Allocations from a function.
type asked func(ctx context.Context, pod *v1.Pod, container string) (Allocation, error)

func (a asked) Allocation(ctx context.Context, pod *v1.Pod, container string) (Allocation, error) {
	return a(ctx, pod, container)
}

// kept is an engine that keeps what it was told of containers.
type kept struct {
	runtime.Engine

	config *runtime.ContainerConfig
}

func (k *kept) CreateContainer(ctx context.Context, sandbox string, c *runtime.ContainerConfig) (string, error) {
	k.config = c
	return k.Engine.CreateContainer(ctx, sandbox, c)
}

func TestAllocationIsAddedToTheConfig(t *testing.T) {
	k := new(kept)
	given := Allocation{
		Env:     []runtime.Env{{Name: "DEVICE", Value: "0"}, {Name: "SAID", Value: "by the manager"}},
		Mounts:  []runtime.Mount{{HostPath: "/lib/driver", ContainerPath: "/driver", ReadOnly: true}},
		Devices: []runtime.Device{{HostPath: "/dev/a", ContainerPath: "/dev/a", Permissions: "rw"}},
		CDI:     []string{"example.com/device=0"}, Annotations: map[string]string{"cdi": "a", runtime.AnnotationHash: "forged"},
		CPUs: "2-3", Mems: "0", Exclusive: true,
	}
	n := newNode(t, func(c *Config) {
		k.Engine, c.Engine = c.Engine, k
		c.Allocations = asked(func(_ context.Context, pod *v1.Pod, container string) (Allocation, error) {
			if pod.UID != "u-1" || container != "a" {
				t.Errorf("asked for %s of %s", container, pod.UID)
			}
			return given, nil
		})
	})
	p := pod(polite)
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "SAID", Value: "by the pod"}}
	p.Spec.Containers[0].Resources.Limits = list("cpu", "2")
	n.sync(p)
	c := k.config
	if diff := cmp.Diff([]runtime.Env{{Name: "DEVICE", Value: "0"}, {Name: "SAID", Value: "by the pod"}}, c.Env); diff != "" {
		t.Errorf("variables: %s", diff)
	}
	if len(c.Mounts) < 2 || c.Mounts[0].ContainerPath != "/driver" {
		t.Errorf("mounts: %+v", c.Mounts)
	}
	if diff := cmp.Diff(given.Devices, c.Devices); diff != "" {
		t.Errorf("devices: %s", diff)
	}
	if diff := cmp.Diff(given.CDI, c.CDI); diff != "" {
		t.Errorf("CDI: %s", diff)
	}
	if c.Annotations["cdi"] != "a" || c.Annotations[runtime.AnnotationHash] == "forged" {
		t.Errorf("annotations: %v", c.Annotations)
	}
	if r := c.Resources; r.CPUs != "2-3" || r.Mems != "0" || r.CPUQuota != -1 {
		t.Errorf("resources: %+v", r)
	}
}

func TestAContainerWaitsForWhatIsSetAside(t *testing.T) {
	err := errors.New("no device is free")
	n := newNode(t, func(c *Config) {
		c.Allocations = asked(func(context.Context, *v1.Pod, string) (Allocation, error) { return Allocation{}, err })
	})
	p := pod(polite)
	seen, result := n.sync(p)
	w := n.look(p).Waiting["a"]
	if len(seen.Containers) > 0 || result.RetryAt.IsZero() || w.Reason != "CreateContainerConfigError" || w.Message != "what is set aside for container a: no device is free" {
		t.Errorf("%d containers, again at %v: %+v", len(seen.Containers), result.RetryAt, w)
	}
}
