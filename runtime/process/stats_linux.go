package process

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// tickNanos is the unit of times in /proc: a hundredth of a second on all Linux systems.
const tickNanos = int64(10 * time.Millisecond)

// ContainerStats sums up the processes of each running container. RootFS is zero.
func (e *Engine) ContainerStats(ctx context.Context, f runtime.Filter) ([]runtime.Usage, error) {
	f.OnlyAlive = true
	running, err := e.ListContainers(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("container stats: %w", err)
	}
	at, all, marks := time.Now(), processes(), map[int]string{}
	for _, s := range all {
		marks[s.pid] = mark(s.pid)
	}
	var out []runtime.Usage
	for _, c := range running {
		l, err := e.life(ctx, c.ID)
		if err != nil || l.state != runtime.Running {
			continue
		}
		u := runtime.Usage{Container: c.ID, Sandbox: c.SandboxID, At: at}
		for _, s := range members(all, l.shim.PID, func(pid int) bool { return marks[pid] == c.ID }) {
			u.CPUNanos += int64(s.cpu) * tickNanos
			u.WorkingSet += s.pages * int64(os.Getpagesize())
		}
		out = append(out, u)
	}
	return out, nil
}
