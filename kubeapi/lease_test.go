package kubeapi

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
)

func (b *bench) lease() *coordv1.Lease {
	l, _ := apifake.Get(b.server, &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: "n1"}})
	return l
}

func TestALeaseIsRenewedEveryTenSeconds(t *testing.T) {
	inBubble(t, func(b *bench) {
		n := b.node()
		b.begin((&Lease{Client: b.client}).Run)
		b.settle()
		is := b.lease()
		if is == nil || *is.Spec.HolderIdentity != "n1" || *is.Spec.LeaseDurationSeconds != 40 || time.Since(is.Spec.RenewTime.Time) > time.Second {
			t.Fatalf("%+v", is)
		}
		if want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: n.UID}}; !slices.Equal(is.OwnerReferences, want) {
			t.Errorf("%+v", is.OwnerReferences)
		}
		b.wantCalls("get leases kube-node-lease/n1", "get nodes n1", "create leases kube-node-lease")
		for range 100 {
			was := b.lease()
			time.Sleep(10500 * time.Millisecond)
			apart := b.lease().Spec.RenewTime.Sub(was.Spec.RenewTime.Time)
			if apart < 10*time.Second || apart > 21*time.Second {
				t.Fatalf("%v apart", apart)
			}
		}
		if calls := b.calls(); len(calls) < 100 || len(calls) > 106 || calls[50] != "update leases kube-node-lease/n1" {
			t.Errorf("%d requests, one of them %s", len(calls), calls[50])
		}
	})
}

func TestALeaseThatIsThereIsTakenOver(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		long := int32(3)
		b.server.Put(&coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: "n1", Labels: map[string]string{"mine": "yes"}}, Spec: coordv1.LeaseSpec{LeaseDurationSeconds: &long}})
		b.begin((&Lease{Client: b.client, Duration: 20 * time.Second}).Run)
		b.settle()
		is := b.lease()
		if *is.Spec.LeaseDurationSeconds != 20 || len(is.OwnerReferences) != 1 || is.Labels["mine"] != "yes" {
			t.Errorf("%+v", is)
		}
		b.server.Remove(is)
		time.Sleep(6 * time.Second)
		if b.lease() == nil {
			t.Error("one that was deleted is not made again")
		}
	})
}

func TestALeaseWaitsForTheNode(t *testing.T) {
	inBubble(t, func(b *bench) {
		var closed atomic.Int64
		b.begin((&Lease{Client: b.client, Failed: func() { closed.Add(1) }}).Run)
		time.Sleep(2 * time.Second)
		if b.lease() != nil || len(b.log.Lines("lease is not renewed")) != 0 || closed.Load() != 0 {
			t.Errorf("lease %v, %v, connections closed %d times", b.lease(), b.log.Lines(""), closed.Load())
		}
		time.Sleep(time.Minute)
		if len(b.log.Lines("lease is not renewed")) == 0 {
			t.Error("a node that is missing for long is not told of")
		}
		b.node()
		time.Sleep(leaseMost)
		if b.lease() == nil {
			t.Error("no lease")
		}
	})
}

func TestALeaseOutlivesFailures(t *testing.T) {
	refusal := func(err error) func(*bench) {
		return func(b *bench) { b.server.Answer(always(apifake.Answer{Err: err})) }
	}
	for name, c := range map[string]struct {
		breaks func(b *bench)
		hook   bool
	}{
		"down":       {func(b *bench) { b.server.SetDown(true) }, true},
		"slow":       {func(b *bench) { b.server.Answer(always(apifake.Answer{Delay: time.Hour})) }, true},
		"no leader":  {refusal(apierrors.NewInternalError(errors.New("no leader"))), true},
		"forbidden":  {refusal(apierrors.NewForbidden(coordv1.Resource("leases"), "n1", errors.New("no"))), true},
		"conflict":   {refusal(apierrors.NewConflict(coordv1.Resource("leases"), "n1", errors.New("no"))), false},
		"cut answer": {func(b *bench) { b.server.Answer(always(apifake.Answer{Lost: true, Bytes: 30})) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.node()
				var closed []time.Time
				stop := b.begin((&Lease{Client: b.client, Failed: func() { closed = append(closed, time.Now()) }}).Run)
				b.settle()
				c.breaks(b)
				b.calls()
				begin := time.Now()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if n := len(b.calls()); n > 45 {
					t.Errorf("%d requests in two minutes", n)
				}
				if (len(closed) > 0) != c.hook {
					t.Errorf("the hook was called %d times", len(closed))
				} else if c.hook && closed[0].Sub(begin) < 10*time.Second {
					t.Errorf("the hook was called after %v", closed[0].Sub(begin))
				}
				if len(b.log.Lines("lease is not renewed")) < 2 {
					t.Errorf("%v", b.log.Lines(""))
				}
				b.server.SetDown(false)
				b.server.Answer(nil)
				time.Sleep(leaseMost + 10*time.Second)
				if since := time.Since(b.lease().Spec.RenewTime.Time); since > 11*time.Second {
					t.Errorf("renewed %v ago", since)
				}
				begin = time.Now()
				stop()
				if took := time.Since(begin); took > time.Second {
					t.Errorf("the stop took %v", took)
				}
			})
		})
	}
}

func TestTheHookIsCalledFromTheSecondFailureOn(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		failures, hooks := 0, 0
		b.begin((&Lease{Client: b.client, Failed: func() {
			if hooks++; hooks == 1 && failures != 2 {
				b.Errorf("called after %d failures", failures)
			}
		}}).Run)
		b.settle()
		b.server.Answer(func(c apifake.Call) *apifake.Answer {
			if c.Resource == "leases" && failures < 3 {
				failures++
				return &apifake.Answer{Err: apierrors.NewServiceUnavailable("no")}
			}
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if failures != 3 || hooks != 2 {
			t.Errorf("%d failures, %d calls", failures, hooks)
		}
	})
}

func TestAConflictIsSolvedAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		b.begin((&Lease{Client: b.client}).Run)
		b.settle()
		other := b.lease()
		other.Labels = map[string]string{"by": "somebody"}
		b.server.Put(other)
		b.calls()
		time.Sleep(11 * time.Second)
		b.wantCalls("update leases kube-node-lease/n1", "get leases kube-node-lease/n1", "update leases kube-node-lease/n1")
		if b.lease().Labels["by"] != "somebody" {
			t.Error("what others wrote is lost")
		}
	})
}

func TestTheNextLease(t *testing.T) {
	long := int32(40)
	holder := "other"
	last := &coordv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "5", OwnerReferences: []metav1.OwnerReference{{UID: "u"}}, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
		Spec:       coordv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &long, RenewTime: &metav1.MicroTime{Time: time.Unix(1000, 0)}},
	}
	for name, now := range map[string]time.Time{"later": time.Unix(1010, 5000), "the clock went back": time.Unix(10, 0), "the clock went forward": time.Unix(1e9, 0)} {
		t.Run(name, func(t *testing.T) {
			next := leaseOf(last, "n1", time.Minute, now)
			if *next.Spec.HolderIdentity != "n1" || *next.Spec.LeaseDurationSeconds != 60 || !next.Spec.RenewTime.Time.Equal(now) ||
				next.ResourceVersion != "5" || len(next.OwnerReferences) != 1 || next.ManagedFields != nil {
				t.Errorf("%+v", next)
			}
			if *last.Spec.HolderIdentity != "other" || last.Spec.RenewTime.Unix() != 1000 {
				t.Error("the last one was changed")
			}
		})
	}
}

func TestTheWaitBetweenTriesOfALease(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 5: 3200 * time.Millisecond, 6: 6400 * time.Millisecond, 7: leaseMost, 1000000: leaseMost} {
		if got := leaseWait(failures); got != want {
			t.Errorf("after %d: %v, wanted %v", failures, got, want)
		}
	}
}

// Connections nobody uses are closed, also below what client-go puts around them.
func TestIdleConnectionsAreClosed(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		if _, err := b.client.Get(b.Context()); err != nil {
			t.Fatal(err)
		}
		if n := b.server.Connections(); n != 1 {
			t.Fatalf("%d connections", n)
		}
		b.client.CloseIdle()
		b.settle()
		if n := b.server.Connections(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	b := apifake.New()
	defer b.Close()
	for name, c := range map[string]Config{
		"nothing":              {},
		"a negative rate":      {REST: b.Config(), Node: "n1", QPS: -1},
		"a negative burst":     {REST: b.Config(), Node: "n1", Burst: -1},
		"a negative heartbeat": {REST: b.Config(), Node: "n1", Heartbeat: -1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	client, err := New(Config{REST: b.Config(), Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	for _, l := range []*Lease{{}, {Client: client, Duration: -time.Second}} {
		if l.Run(t.Context()) == nil {
			t.Errorf("%+v: no error", l)
		}
	}
}
