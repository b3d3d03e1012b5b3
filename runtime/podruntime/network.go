package podruntime

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// networkAge is how long a runtime that had a network is believed to have one: pods that come together ask once.
const networkAge = 5 * time.Second

// uplink remembers when the runtime was last known to have a network.
type uplink struct{ seen atomic.Pointer[time.Time] }

// up is nil when the runtime can give a sandbox a network.
func (u *uplink) up(ctx context.Context, info func(context.Context) (runtime.Info, error)) error {
	if at := u.seen.Load(); at != nil && time.Since(*at) < networkAge {
		return nil
	}
	i, err := info(ctx)
	if err != nil {
		return err
	}
	if !i.Network.OK {
		return fmt.Errorf("%w: container runtime network not ready: NetworkReady=false reason:%s message:%s",
			runtime.ErrNetworkNotReady, i.Network.Reason, i.Network.Message)
	}
	u.seen.Store(new(time.Now()))
	return nil
}
