package offline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/syncloop/offline"
)

// uplink is an API server that may be away.
type uplink struct{ away bool }

func (u uplink) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	if !u.away {
		set([]*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", UID: "u1"}}}, true)
	}
	<-ctx.Done()
	return nil
}

func (u uplink) Class(string) (string, error) { return "", u.error() }

func (u uplink) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return nil, u.error()
}

func (u uplink) Secret(context.Context, string, string) (*v1.Secret, error) { return nil, u.error() }

func (u uplink) Services(context.Context, string) ([]*v1.Service, error) {
	return []*v1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "ledger"}}}, u.error()
}

func (u uplink) Token(context.Context, *v1.Pod, string, int64) (string, time.Time, error) {
	return "", time.Time{}, u.error()
}

func (u uplink) Follow(string, string, string, func()) (stop func()) { return func() {} }

func (u uplink) error() error {
	if u.away {
		return errors.New("no route to host")
	}
	return nil
}

// An agent whose API server is away starts with what it knew before.
func Example() {
	dir, _ := os.MkdirTemp("", "offline")
	defer os.RemoveAll(dir)
	for _, server := range []uplink{{}, {away: true}} {
		cache, err := offline.New(offline.Config{Dir: dir, Source: server, Objects: server})
		if err != nil {
			fmt.Println(err)
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		_ = cache.Run(ctx, func(pods []*v1.Pod, complete bool) {
			fmt.Println("pods:", len(pods), "complete:", complete)
			if len(pods) > 0 {
				services, err := cache.Services(ctx, pods[0].Namespace)
				fmt.Println(pods[0].Name, "and", services[0].Name, err)
				cancel()
			}
		})
	}
	// Output:
	// pods: 0 complete: false
	// pods: 1 complete: true
	// till and ledger <nil>
	// pods: 1 complete: false
	// till and ledger <nil>
}
