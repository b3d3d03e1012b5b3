package firstlight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels by which everybody finds pods of a kubelet. They are written out here once more: what the agent
// takes for their names must not decide what is right.
const (
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// dial connects to a container runtime, beside the agent.
func dial(tb testing.TB, endpoint string) cri.RuntimeServiceClient {
	tb.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return cri.NewRuntimeServiceClient(conn)
}

// sandboxes are those of a pod, or all without a name.
func sandboxes(tb testing.TB, c cri.RuntimeServiceClient, pod string) []*cri.PodSandbox {
	tb.Helper()
	f := &cri.PodSandboxFilter{LabelSelector: map[string]string{}}
	if pod != "" {
		f.LabelSelector[labelPod] = pod
	}
	a, err := c.ListPodSandbox(tb.Context(), &cri.ListPodSandboxRequest{Filter: f})
	if err != nil {
		tb.Fatal(err)
	}
	return a.GetItems()
}

// containers are those of a pod, or all without a name, oldest first.
func containers(tb testing.TB, c cri.RuntimeServiceClient, pod string) []*cri.Container {
	tb.Helper()
	f := &cri.ContainerFilter{LabelSelector: map[string]string{}}
	if pod != "" {
		f.LabelSelector[labelPod] = pod
	}
	a, err := c.ListContainers(tb.Context(), &cri.ListContainersRequest{Filter: f})
	if err != nil {
		tb.Fatal(err)
	}
	list := a.GetContainers()
	slices.SortFunc(list, func(a, b *cri.Container) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	return list
}

// containerStatus is a complete look at a container.
func containerStatus(tb testing.TB, c cri.RuntimeServiceClient, id string) *cri.ContainerStatusResponse {
	tb.Helper()
	a, err := c.ContainerStatus(tb.Context(), &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// sandboxStatus is a complete look at a sandbox.
func sandboxStatus(tb testing.TB, c cri.RuntimeServiceClient, id string) *cri.PodSandboxStatusResponse {
	tb.Helper()
	a, err := c.PodSandboxStatus(tb.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// instance is a container that ran, or runs.
type instance struct {
	pod, uid, name, id string
	restarts           uint32
	started, finished  time.Time // zero: not yet
	told               time.Time // when the event of its start arrived
	code               int32
}

// witness writes down which containers ran, from the runtime's events: also those that are long gone.
type witness struct {
	mu        sync.Mutex // guards the rest
	instances map[string]*instance
	news      chan struct{} // closed at the next change
}

// watchRuntime follows the runtime's events until the test ends.
func watchRuntime(tb testing.TB, c cri.RuntimeServiceClient) *witness {
	tb.Helper()
	w := &witness{instances: map[string]*instance{}, news: make(chan struct{})}
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	stream, err := c.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		stop()
		tb.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				return // the end of the test, or of containerd
			}
			w.note(e)
		}
	})
	tb.Cleanup(func() { stop(); reader.Wait() })
	return w
}

func (w *witness) note(e *cri.ContainerEventResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range e.GetContainersStatuses() {
		labels := s.GetLabels()
		i := w.instances[s.GetId()]
		if i == nil {
			i = &instance{
				pod: labels[labelPod], uid: labels[labelUID], name: labels[labelContainer], id: s.GetId(), restarts: s.GetMetadata().GetAttempt(),
			}
			w.instances[i.id] = i
		}
		if n := s.GetStartedAt(); n > 0 && i.started.IsZero() {
			i.started = time.Unix(0, n)
		}
		if n := s.GetFinishedAt(); n > 0 && i.finished.IsZero() {
			i.finished, i.code = time.Unix(0, n), s.GetExitCode()
		}
		if s.GetId() == e.GetContainerId() && e.GetContainerEventType() == cri.ContainerEventType_CONTAINER_STARTED_EVENT && i.told.IsZero() {
			i.told = time.Now()
		}
	}
	if i := w.instances[e.GetContainerId()]; i != nil && e.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT && i.finished.IsZero() {
		i.finished, i.code = time.Unix(0, e.GetCreatedAt()), -1 // it was removed before the event of its end was made, which then has no status
	}
	close(w.news)
	w.news = make(chan struct{})
}

// of are the instances of a pod by its name, in the order of their starts; those that never started come last.
func (w *witness) of(pod string) []instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.list(pod)
}

func (w *witness) list(pod string) []instance {
	var list []instance
	for _, i := range w.instances {
		if i.pod == pod {
			list = append(list, *i)
		}
	}
	slices.SortFunc(list, func(a, b instance) int {
		if a.started.IsZero() != b.started.IsZero() {
			return cmp.Compare(a.started.Unix(), b.started.Unix()) * -1
		}
		return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id))
	})
	return list
}

// await waits until the instances of a pod are as wanted.
func (w *witness) await(tb testing.TB, pod, what string, patience time.Duration, ok func([]instance) bool) []instance {
	tb.Helper()
	late := time.After(patience)
	for {
		w.mu.Lock()
		list, news := w.list(pod), w.news
		w.mu.Unlock()
		if ok(list) {
			return list
		}
		select {
		case <-news:
		case <-late:
			tb.Fatalf("%s: waited %v in vain for %s; its containers were %v", pod, patience, what, list)
		}
	}
}

// ran are the instances of a pod when the events of so many starts have arrived, and those of the ends of all that another
// one of their name has followed.
func (w *witness) ran(tb testing.TB, pod string, starts int) []instance {
	tb.Helper()
	return w.await(tb, pod, fmt.Sprintf("the events of %d starts, and of each end before another", starts), patience, func(list []instance) bool {
		started := 0
		for n, i := range list {
			if i.started.IsZero() {
				break // the rest never did
			}
			started++
			if i.finished.IsZero() && slices.ContainsFunc(list[n+1:], func(o instance) bool { return o.name == i.name && !o.started.IsZero() }) {
				return false
			}
		}
		return started >= starts
	})
}

// ended are the instances of a pod when the events of so many starts and of all ends have arrived.
func (w *witness) ended(tb testing.TB, pod string, starts int) []instance {
	tb.Helper()
	return w.await(tb, pod, fmt.Sprintf("the events of %d starts and of their ends", starts), patience, func(list []instance) bool {
		return len(list) >= starts && !slices.ContainsFunc(list, func(i instance) bool { return i.started.IsZero() || i.finished.IsZero() })
	})
}

// overlaps are pairs of instances of one container of a pod that ran at the same time. There must be none.
func overlaps(list []instance) (pairs [][2]instance) {
	for n, a := range list {
		for _, b := range list[n+1:] {
			if a.name != b.name || a.started.IsZero() || b.started.IsZero() {
				continue
			}
			if a.finished.IsZero() || b.started.Before(a.finished) { // a started first
				pairs = append(pairs, [2]instance{a, b})
			}
		}
	}
	return pairs
}
