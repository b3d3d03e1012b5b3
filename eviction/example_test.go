package eviction_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// farm is an agent of one's own: it knows what its jobs use and how to end one. Nothing else of this module is needed.
type farm struct {
	jobs   []*v1.Pod
	memory map[types.UID]int64
}

func (f *farm) start(name string, mib int64, request string, priority int32) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}},
	}}}}
	f.jobs, f.memory[p.UID] = append(f.jobs, p), mib<<20
}

// Observe looks at the host: here, 1000 MiB minus what the jobs use.
func (f *farm) Observe(context.Context) (eviction.Observation, error) {
	usage, available := map[types.UID]eviction.Usage{}, int64(1000<<20)
	for _, p := range f.jobs {
		usage[p.UID] = eviction.Usage{Memory: f.memory[p.UID]}
		available -= f.memory[p.UID]
	}
	memory := eviction.Level{Available: available, Capacity: 1000 << 20, At: time.Now()}
	return eviction.Observation{Levels: map[eviction.Signal]eviction.Level{eviction.MemoryAvailable: memory}, Usage: usage}, nil
}

// Active are the jobs that run, Kill ends one, and one that has ended holds nothing more.
func (f *farm) Active() []*v1.Pod                        { return f.jobs }
func (f *farm) Settled(context.Context, types.UID) error { return nil }
func (f *farm) Kill(_ context.Context, uid types.UID, how runtime.Termination) error {
	fmt.Printf("end %s within %v: %.37s\n", uid, how.Grace, how.Message)
	f.jobs = slices.DeleteFunc(f.jobs, func(p *v1.Pod) bool { return p.UID == uid })
	return nil
}

func Example() {
	f := &farm{memory: map[types.UID]int64{}}
	f.start("within its request", 300, "400Mi", 0)
	f.start("far above, but important", 400, "100Mi", 1000)
	f.start("a bit above", 250, "200Mi", 0)
	thresholds, err := eviction.Parse(map[string]string{"memory.available": "100Mi"}, nil, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := eviction.New(eviction.Config{Source: f, Pods: f, Thresholds: thresholds, Observe: observe.To{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(guard.Check(context.Background())) // Run does this each ten seconds
	fmt.Println(guard.Pressure())
	fmt.Println(guard.Admit(context.Background(), &v1.Pod{}, nil) == nil)
	// Output:
	// end a bit above within 1s: The node was low on resource: memory.
	// [a bit above] <nil>
	// [MemoryPressure]
	// false
}
