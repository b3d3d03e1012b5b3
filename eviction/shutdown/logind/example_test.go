package logind_test

import (
	"context"
	"fmt"

	"github.com/kubeletkit/kubeletkit/eviction/shutdown"
	"github.com/kubeletkit/kubeletkit/eviction/shutdown/logind"
)

// A Notice is what a shutdown.Manager waits for. Without systemd to speak to it says so, and is asked again.
func Example() {
	var notice shutdown.Notice = logind.Notice{}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	err := notice.Watch(ctx, 0, func(bool) <-chan struct{} { return nil })
	fmt.Println("over:", ctx.Err() != nil || err != nil)
	// Output: over: true
}
