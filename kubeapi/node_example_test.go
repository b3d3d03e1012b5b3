package kubeapi_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/kubeapi"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/nodestatus"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// jobs is a backend that is no container runtime. This one only notes what was asked for; yours asks a service.
// syncloop.Runtime says what its methods promise, syncloop/looptest checks it.
type jobs struct {
	mu   sync.Mutex // guards what follows
	made map[types.UID]runtime.Pod
}

func (j *jobs) Pods(context.Context) (all []runtime.Pod, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.made {
		p.At = time.Now()
		all = append(all, p)
	}
	return all, nil
}

func (j *jobs) Pod(_ context.Context, uid types.UID) (runtime.Pod, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.made[uid]
	p.UID, p.At = uid, time.Now()
	return p, nil
}

func (j *jobs) Sync(_ context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
	if len(in.Seen.Sandboxes) > 0 {
		return runtime.SyncResult{}, nil
	}
	ref := runtime.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	p := runtime.Pod{PodRef: ref, Sandboxes: []runtime.Sandbox{{PodRef: ref, ID: string(pod.UID), Ready: true}}}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		p.Containers = append(p.Containers, runtime.Container{
			Pod: ref, ID: string(pod.UID) + "/" + c.Name, SandboxID: string(pod.UID), Name: c.Name, Image: c.Image, State: runtime.Running, Started: time.Now(),
		})
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.made[pod.UID] = p
	return runtime.SyncResult{Acted: true}, nil
}

func (j *jobs) Stop(_ context.Context, _ *v1.Pod, seen runtime.Pod, _ runtime.Termination) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, exists := j.made[seen.UID]
	if !exists {
		return nil
	}
	p.Sandboxes, p.Containers = slices.Clone(p.Sandboxes), slices.Clone(p.Containers) // others still read the old ones
	p.Sandboxes[0].Ready = false
	for i := range p.Containers {
		p.Containers[i].State, p.Containers[i].Finished = runtime.Exited, time.Now()
	}
	j.made[seen.UID] = p
	return nil
}

func (j *jobs) Remove(_ context.Context, uid types.UID, what runtime.Removal) error {
	if what != runtime.Release { // until then it is read how the pod ended
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.made, uid)
	}
	return nil
}

// join makes a backend a node of a cluster: it registers, shows that it lives, runs the pods that are bound to it, and tells
// how they are.
func join(ctx context.Context, api *rest.Config, name string, backend syncloop.Runtime) error {
	client, err := kubeapi.New(kubeapi.Config{REST: api, Node: name})
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	events := kubeapi.NewEvents(client)
	obs := observe.To{Events: events} // and a logger
	statuses, err := status.New(status.Config{Sink: &kubeapi.Sink{Client: client}, Observe: obs})
	if err != nil {
		return err
	}
	var roster syncloop.Roster
	changes, err := pleg.New(pleg.Config{Source: backend, Tell: func(e pleg.Event) { roster.Wake(e.Pod.UID) }, Busy: roster.Busy, Observe: obs})
	if err != nil {
		return err
	}
	loop, err := syncloop.New(syncloop.Config{
		Sources: map[string]syncloop.PodSource{"api": &kubeapi.Source{Client: client}}, // a source of this name is an API server
		Runtime: backend, Sink: statuses, Roster: &roster, States: changes, RuntimeName: func() string { return "jobs" }, Observe: obs,
	})
	if err != nil {
		return err
	}
	// Only pods that tolerate the taint come here. DaemonSets for all nodes do not.
	initial, err := nodestatus.Initial(nodestatus.Registration{Name: name, Taints: []v1.Taint{{Key: "example.com/jobs", Effect: v1.TaintEffectNoSchedule}}})
	if err != nil {
		return err
	}
	room := func() (nodestatus.Machine, error) { return nodestatus.Machine{Cores: 64, Memory: 256 << 30}, nil }
	capacity, err := nodestatus.Capacity(nodestatus.Sizes{Machine: room, MaxPods: 500})
	if err != nil {
		return err
	}
	node, err := nodestatus.New(nodestatus.Config{
		Name: name, Initial: initial, Sink: client, Seen: client.Node, Observe: obs,
		Setters: []nodestatus.Setter{
			nodestatus.MachineInfo(room), nodestatus.VersionInfo("v1.37.2"), capacity, nodestatus.Pressure(nil), nodestatus.Ready(changes.Healthy, loop.Healthy),
		},
	})
	if err != nil {
		return err
	}
	// A program that is to tell the last statuses, too, stops these from the end: see examples/nodeagent.
	parts, ctx := errgroup.WithContext(ctx)
	for _, p := range []interface {
		Run(ctx context.Context) error
	}{client, events, &kubeapi.Lease{Client: client}, statuses, node, changes, loop} {
		parts.Go(func() error { return p.Run(ctx) })
	}
	return parts.Wait()
}

// A backend that is no container runtime appears as a node and runs what a cluster binds to it. What this node has not is a
// server of the kubelet's API, for kubectl logs and exec: package server makes one, and nodestatus.DaemonEndpoints tells its
// port.
func Example_node() {
	server := apifake.New() // for a true one the rest.Config comes from LoadREST
	defer server.Close()
	server.Put(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job"},
		Spec:       v1.PodSpec{NodeName: "jobs-1", Containers: []v1.Container{{Name: "main", Image: "example.com/job:1"}}},
	})

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error)
	go func() { done <- join(ctx, server.Config(), "jobs-1", &jobs{made: map[types.UID]runtime.Pod{}}) }()

	// What others see of it.
	others, err := kubeapi.New(kubeapi.Config{REST: server.Config(), Node: "jobs-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer others.CloseIdle()
	watch, seen := context.WithCancel(ctx)
	go func() { done <- others.Run(watch) }()
	err = (&kubeapi.Source{Client: others}).Run(watch, func(pods []*v1.Pod, _ bool) {
		if node := others.Node(); pods[0].Status.Phase == v1.PodRunning {
			fmt.Println("node", node.Name, "has", node.Status.Capacity.Cpu(), "CPUs; pod", pods[0].Name, "is", pods[0].Status.Phase)
			seen()
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	stop()
	fmt.Println(<-done, <-done)
	// Output:
	// node jobs-1 has 64 CPUs; pod job is Running
	// <nil> <nil>
}
