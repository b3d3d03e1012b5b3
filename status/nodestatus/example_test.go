package nodestatus_test

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/status/nodestatus"
)

// console is a Sink that prints what it is told.
type console struct{ node *v1.Node }

func (c *console) Register(_ context.Context, node *v1.Node) (*v1.Node, error) {
	c.node = node
	c.show("registered")
	return node, nil
}

func (c *console) Get(context.Context) (*v1.Node, error) { return c.node, nil }

func (c *console) UpdateNode(_ context.Context, _, to *v1.Node) error {
	c.node = to
	c.show("updated")
	return nil
}

func (c *console) show(what string) {
	s := c.node.Status
	ready := s.Conditions[len(s.Conditions)-1]
	fmt.Printf("%s %s: %s CPUs, %s for pods, Ready=%s %q\n",
		what, c.node.Name, s.Capacity.Cpu(), s.Allocatable.Memory(), ready.Status, ready.Message)
}

// A node of four CPUs, first while its network is not there yet.
func ExampleReporter() {
	machine := func() (nodestatus.Machine, error) {
		return nodestatus.Machine{Cores: 4, Memory: 8 << 30, MachineID: "4711"}, nil
	}
	reserved, err := nodestatus.ParseReserved(map[string]string{"memory": "1Gi"})
	if err != nil {
		fmt.Println(err)
		return
	}
	capacity, err := nodestatus.Capacity(nodestatus.Sizes{Machine: machine, SystemReserved: reserved})
	if err != nil {
		fmt.Println(err)
		return
	}
	initial, err := nodestatus.Initial(nodestatus.Registration{Name: "edge-1", Labels: map[string]string{"site": "north"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	network := errors.New("no network yet")
	reporter, err := nodestatus.New(nodestatus.Config{
		Name: "edge-1", Initial: initial, Sink: &console{},
		Setters: []nodestatus.Setter{
			nodestatus.MachineInfo(machine), nodestatus.VersionInfo("v1.37.2"), capacity,
			nodestatus.Pressure(nil), nodestatus.Ready(func() error { return network }),
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Run does this every ten seconds.
	for range 3 {
		if err := reporter.Report(context.Background()); err != nil {
			fmt.Println(err)
		}
		network = nil
	}
	// Output:
	// registered edge-1: 4 CPUs, 7Gi for pods, Ready=False "no network yet"
	// updated edge-1: 4 CPUs, 7Gi for pods, Ready=True "kubelet is posting ready status"
}
