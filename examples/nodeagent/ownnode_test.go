package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/stats"
	"github.com/kubeletkit/kubeletkit/status/nodestatus"
)

func TestOwnNode(t *testing.T) {
	for name, c := range map[string]struct {
		machine nodestatus.Machine
		storage error
		broken  error
		want    map[v1.ResourceName]string // allocatable; nil: the node is not known
	}{
		"as it would report itself": {
			machine: nodestatus.Machine{Cores: 4, Memory: 8 << 30},
			want:    map[v1.ResourceName]string{"cpu": "3500m", "memory": "7Gi", "pods": "20", "ephemeral-storage": "1Ti"},
		},
		"huge pages are no memory": {
			machine: nodestatus.Machine{Cores: 4, Memory: 8 << 30, HugePages: map[int64]int64{2 << 20: 512}},
			want:    map[v1.ResourceName]string{"memory": "6Gi", "hugepages-2Mi": "1Gi"},
		},
		"a machine that cannot be looked at":     {broken: errors.New("no /proc")},
		"memory that cannot be told":             {machine: nodestatus.Machine{Cores: 4}},
		"processors that cannot be told":         {machine: nodestatus.Machine{Memory: 8 << 30}},
		"a file system that cannot be looked at": {machine: nodestatus.Machine{Cores: 4, Memory: 8 << 30}, storage: errors.New("no disk")},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			o, err := parse([]string{"--pod-manifest-path=/m", "--hostname-override=n1", "--node-labels=disk=ssd", "--register-with-taints=a=b:NoSchedule"}, &out)
			if err != nil {
				t.Fatal(err)
			}
			initial, err := nodestatus.Initial(registration(o))
			if err != nil {
				t.Fatal(err)
			}
			capacity, err := nodestatus.Capacity(nodestatus.Sizes{
				Machine: func() (nodestatus.Machine, error) { return c.machine, c.broken }, MaxPods: 20,
				KubeReserved: v1.ResourceList{"cpu": resource.MustParse("500m")}, EvictionHard: map[string]string{"memory.available": "1Gi"},
				Storage: func() (int64, error) { return 1 << 40, c.storage },
			})
			if err != nil {
				t.Fatal(err)
			}
			own := &ownNode{initial: initial, capacity: capacity, log: slog.New(slog.NewTextHandler(&out, nil))}
			node := own.object()
			if (node == nil) != (c.want == nil) || strings.Contains(out.String(), "how much room there is") != (node == nil) {
				t.Fatalf("it is %v; said: %s", node, &out)
			}
			if node == nil {
				return
			}
			for name, want := range c.want {
				if got := node.Status.Allocatable[name]; got.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("%s is %s, want %s", name, got.String(), want)
				}
			}
			if node.Name != "n1" || node.Labels["disk"] != "ssd" || node.Labels[v1.LabelHostname] != "n1" || len(node.Spec.Taints) != 1 {
				t.Errorf("it is %v", node)
			}
		})
	}
}

func TestTheSizeOfTheNodeIsTheObjectsOrItsOwn(t *testing.T) {
	of := func(name, memory string) *v1.Node {
		n := &v1.Node{}
		if n.Name = name; memory != "" {
			n.Status.Allocatable = v1.ResourceList{"memory": resource.MustParse(memory)}
		}
		return n
	}
	own := of("own", "1Gi")
	for name, c := range map[string]struct {
		object *v1.Node
		want   string
	}{
		"there is no object":          {nil, "own"},
		"one that does not say":       {of("object", ""), "own"},
		"one that says how big it is": {of("object", "2Gi"), "object"},
	} {
		if got := sized(func() *v1.Node { return c.object }, func() *v1.Node { return own })(); got.Name != c.want {
			t.Errorf("%s: %s", name, got.Name)
		}
	}
}

func TestOwnNodeIsLookedAtAnewWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		cores, looks := 2, 0
		capacity := func(_ context.Context, node *v1.Node) error {
			looks++
			if cores == 0 {
				return errors.New("no machine")
			}
			node.Status.Capacity = v1.ResourceList{"cpu": *resource.NewQuantity(int64(cores), resource.DecimalSI), "memory": resource.MustParse("1Gi")}
			return nil
		}
		own := &ownNode{initial: &v1.Node{}, capacity: capacity, log: slog.New(slog.NewTextHandler(&out, nil))}
		has := func(want int64, looked int) {
			t.Helper()
			var got int64
			if n := own.object(); n != nil {
				got = n.Status.Capacity.Cpu().Value()
			}
			if got != want || looks != looked {
				t.Errorf("%d processors after %d looks, want %d and %d", got, looks, want, looked)
			}
		}
		has(2, 1)
		cores = 1
		has(2, 1)
		time.Sleep(ownFor)
		has(1, 2)
		cores = 0
		for i := range 3 {
			time.Sleep(ownFor)
			has(1, 3+i) // the last good answer stands
		}
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Errorf("%d lines, want one: %s", n, &out)
		}
		cores = 8
		time.Sleep(ownFor)
		has(8, 6)
	})
}

func TestOwnNodeOfThisMachine(t *testing.T) {
	for _, c := range []struct {
		rule    string
		flags   []string
		kept    int64 // CPUs that pods may not have
		storage bool
	}{
		{"all of it", nil, 0, true},
		{"without the CPUs reserved by number", []string{"--reserved-cpus=0", "--kube-reserved=cpu=100m"}, 1, true},
		{"without its disk", []string{"--local-storage-capacity-isolation=false"}, 0, false},
	} {
		o, err := parse(append([]string{"--pod-manifest-path=/m", "--root-dir=" + t.TempDir()}, c.flags...), &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		var b build
		figures := one(&b, stats.New, stats.Config{RootDir: o.flags.RootDir})
		own := newOwnNode(t.Context(), &b, o, figures, slog.New(slog.DiscardHandler))
		if b.err != nil {
			t.Fatal(b.err)
		}
		node := own.object()
		if node == nil || node.Status.Allocatable.Pods().Value() != 110 {
			t.Fatalf("%s: it is %v", c.rule, node)
		}
		kept := node.Status.Capacity.Cpu().MilliValue() - node.Status.Allocatable.Cpu().MilliValue()
		if _, storage := node.Status.Allocatable[v1.ResourceEphemeralStorage]; kept != 1000*c.kept || storage != c.storage {
			t.Errorf("%s: %d thousandths of a CPU are kept back, storage %v", c.rule, kept, storage)
		}
	}
}

// A node that keeps back more than it has could run nothing.
func TestAnAgentThatKeepsBackMoreThanThereIsDoesNotStart(t *testing.T) {
	for _, flag := range []string{"--kube-reserved=memory=1Ei", "--system-reserved=cpu=100000", "--eviction-hard=memory.available<1Ei", "--eviction-hard=nodefs.available<1Ei"} {
		o, err := parse([]string{"--pod-manifest-path=/m", "--root-dir=" + t.TempDir(), flag}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		var b build
		newOwnNode(t.Context(), &b, o, one(&b, stats.New, stats.Config{RootDir: o.flags.RootDir}), slog.New(slog.DiscardHandler))
		if b.err == nil || !strings.Contains(b.err.Error(), "kept back from pods") {
			t.Errorf("%s: %v", flag, b.err)
		}
	}
}
