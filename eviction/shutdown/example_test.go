package shutdown_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction/shutdown"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// button is a Notice: somebody pressed the power button.
type button struct{ off chan struct{} }

func (b button) Watch(_ context.Context, need time.Duration, tell func(down bool) <-chan struct{}) error {
	fmt.Println("pods may take", need)
	<-tell(true)
	fmt.Println("the machine goes")
	close(b.off)
	return nil
}

// jobs are two pods that end when they are told to.
type jobs struct{}

func (jobs) Active() []*v1.Pod {
	job := func(name string, priority int32) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority}}
	}
	return []*v1.Pod{job("dns", 2_000_000_000), job("batch", 0)}
}

func (jobs) Kill(_ context.Context, uid types.UID, how runtime.Termination) error {
	fmt.Println("end", uid, "within", how.Grace)
	return nil
}

func (jobs) Settled(context.Context, types.UID) error { return nil }

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	power := button{make(chan struct{})}
	guard, err := shutdown.New(shutdown.Config{Notice: power, Pods: jobs{}, Periods: shutdown.Periods(30*time.Second, 10*time.Second)})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		<-power.off
		stop()
	}()
	fmt.Println(guard.Run(ctx), guard.Healthy())
	// Output:
	// pods may take 30s
	// end batch within 20s
	// end dns within 10s
	// the machine goes
	// <nil> node is shutting down
}
