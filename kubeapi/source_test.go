package kubeapi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

func TestASourceShowsThePodsOfItsNode(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		first := b.put(pod("a"))
		other := pod("b")
		other.Spec.NodeName = "n2"
		b.put(other)
		over := pod("c")
		over.Status.Phase = v1.PodSucceeded
		over = b.put(over)
		d, _ := b.source()
		b.settle()
		if got, want := d.pods(), describe([]*v1.Pod{first, over}); !slices.Equal(got, want) {
			t.Errorf("%v, wanted %v", got, want)
		}
		second := b.put(pod("d"))
		b.server.Remove(first)
		b.settle()
		if got, want := d.pods(), describe([]*v1.Pod{second, over}); !slices.Equal(got, want) {
			t.Errorf("after changes: %v, wanted %v", got, want)
		}
		for _, p := range d.newest() {
			if p.ManagedFields != nil {
				t.Errorf("%s has managed fields", p.Name)
			}
		}
	})
}

func TestASourceThatNobodyCanTellOfItsNodeSaysSo(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		b.begin(func(ctx context.Context) error { // the Client does not run
			return (&Source{Client: b.client}).Run(ctx, func([]*v1.Pod, bool) { b.Error("pods came") })
		})
		time.Sleep(time.Hour)
		if said := b.log.Lines("see that the Client runs"); len(said) != 1 {
			t.Errorf("%q", said)
		}
	})
}

func TestASourceWaitsForTheNode(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.put(pod("a"))
		d, _ := b.source()
		time.Sleep(time.Hour)
		if n := d.count(); n != 0 {
			t.Fatalf("%d deliveries without a node", n)
		}
		b.node()
		b.settle()
		if len(d.pods()) != 1 {
			t.Errorf("%v", d.pods())
		}
	})
}

func TestASourceSaysNothingBeforeTheFirstFullList(t *testing.T) {
	for name, answer := range map[string]apifake.Answer{
		"forbidden":           {Err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)},
		"too many requests":   {Err: apierrors.NewTooManyRequests("slow down", 1)},
		"internal error":      {Err: apierrors.NewInternalError(errors.New("no leader"))},
		"an answer cut short": {Lost: true, Bytes: 40},
		"no answer":           {Lost: true},
		"one that takes long": {Delay: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.node()
				b.put(pod("a"))
				b.put(pod("b"))
				begin := time.Now()
				b.server.Answer(func(c apifake.Call) *apifake.Answer {
					if c.Resource == "pods" && time.Since(begin) < 20*time.Second {
						return &answer
					}
					return nil
				})
				d, _ := b.source()
				time.Sleep(19 * time.Second)
				if n := d.count(); n != 0 {
					t.Errorf("%d deliveries, last %v", n, d.pods())
				}
				time.Sleep(2 * time.Minute)
				if len(d.pods()) != 2 {
					t.Errorf("later: %v", d.pods())
				}
			})
		})
	}
}

func TestABrokenWatchIsNoEmptySet(t *testing.T) {
	for name, breaks := range map[string]func(b *bench){
		"closed":           func(b *bench) { b.server.CutWatches() },
		"history is gone":  func(b *bench) { b.server.Compact(); b.server.CutWatches() },
		"server down":      func(b *bench) { b.server.SetDown(true) },
		"forbidden":        refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)),
		"unauthorized":     refuse(apierrors.NewUnauthorized("expired")),
		"internal error":   refuse(apierrors.NewInternalError(errors.New("no leader"))),
		"too many":         refuse(apierrors.NewTooManyRequests("", 1)),
		"not found":        refuse(apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "")),
		"cut in an object": func(b *bench) { b.server.Answer(always(apifake.Answer{Lost: true, Bytes: 300})); b.server.CutWatches() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.node()
				b.put(pod("a"))
				b.put(pod("b"))
				d, _ := b.source()
				b.settle()
				breaks(b)
				for range 100 {
					time.Sleep(3 * time.Second)
					if len(d.pods()) != 2 {
						t.Fatalf("%v", d.pods())
					}
				}
				b.server.SetDown(false)
				b.server.Answer(nil)
				b.put(pod("c"))
				time.Sleep(2 * time.Minute)
				if len(d.pods()) != 3 {
					t.Errorf("after it: %v", d.pods())
				}
			})
		})
	}
}

func always(a apifake.Answer) func(apifake.Call) *apifake.Answer {
	return func(apifake.Call) *apifake.Answer { return &a }
}

func refuse(err error) func(b *bench) {
	return func(b *bench) {
		b.server.Answer(always(apifake.Answer{Err: err}))
		b.server.CutWatches()
	}
}

func TestCase_c159_after_a_long_cut_the_set_is_what_the_server_has_then(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		a, gone := b.put(pod("a")), b.put(pod("gone"))
		d, _ := b.source()
		b.settle()
		b.server.SetDown(true)
		time.Sleep(6 * time.Minute)
		b.server.Delete(a)
		b.server.Remove(gone)
		b.server.Compact()
		if len(d.pods()) != 2 {
			t.Errorf("during the cut: %v", d.pods())
		}
		b.server.SetDown(false)
		time.Sleep(2 * time.Minute)
		b.settle()
		if len(d.newest()) != 1 || d.newest()[0].DeletionTimestamp == nil {
			t.Errorf("after it: %v", d.pods())
		}
	})
}

func TestTwoPodsOfOneNameInSequence(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		first := b.put(pod("web"))
		d, _ := b.source()
		b.settle()
		for _, cut := range []bool{false, true} {
			if cut {
				b.server.SetDown(true)
				b.server.Compact()
			}
			second := pod("web")
			second.UID = first.UID + "x"
			first = b.put(second)
			b.server.SetDown(false)
			time.Sleep(2 * time.Minute)
			if got, want := d.pods(), describe([]*v1.Pod{first}); !slices.Equal(got, want) {
				t.Errorf("cut %t: %v, wanted %v", cut, got, want)
			}
		}
	})
}

func TestMirrorsAreKeptBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		mirror := pod("static-n1")
		mirror.Annotations = map[string]string{podspec.MirrorAnnotation: "hash", podspec.SourceAnnotation: "file"}
		mirror = b.put(mirror)
		own := b.put(pod("web"))
		d, _ := b.source()
		b.settle()
		if !slices.Equal(d.pods(), describe([]*v1.Pod{own})) || !slices.Equal(describe(d.newestMirrors()), describe([]*v1.Pod{mirror})) {
			t.Errorf("pods %v, mirrors %v", d.pods(), describe(d.newestMirrors()))
		}
		b.server.Remove(mirror)
		b.settle()
		if len(d.newestMirrors()) != 0 {
			t.Errorf("mirrors %v", describe(d.newestMirrors()))
		}
	})
}

func TestCase_c051_an_annotation_makes_no_pod_of_the_server_a_static_one(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		p := pod("sly")
		p.Annotations = map[string]string{podspec.SourceAnnotation: "file", "mine": "stays"}
		b.put(p)
		d, _ := b.source()
		b.settle()
		if len(d.newest()) != 1 || podspec.Static(d.newest()[0]) || d.newest()[0].Annotations["mine"] != "stays" {
			t.Errorf("%v", d.newest())
		}
	})
}

func TestStaleCachesAreNotBelieved(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.node()
		a := b.put(pod("a"))
		b.server.Freeze(true) // one server of several lags behind
		b.server.Remove(a)
		next := b.put(pod("b"))
		d, _ := b.source()
		time.Sleep(10 * time.Minute)
		for _, p := range d.pods() {
			t.Logf("shown: %s", p)
		}
		b.server.Freeze(false)
		time.Sleep(2 * time.Minute)
		if got, want := d.pods(), describe([]*v1.Pod{next}); !slices.Equal(got, want) {
			t.Errorf("%v, wanted %v", got, want)
		}
	})
}

func TestAStopIsSoonWhateverTheServerDoes(t *testing.T) {
	for name, breaks := range map[string]func(b *bench){
		"well":      func(*bench) {},
		"down":      func(b *bench) { b.server.SetDown(true) },
		"too many":  refuse(apierrors.NewTooManyRequests("", 30)),
		"slow":      func(b *bench) { b.server.Answer(always(apifake.Answer{Delay: time.Hour})); b.server.CutWatches() },
		"forbidden": refuse(apierrors.NewForbidden(schema.GroupResource{}, "", nil)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range []bool{true, false} {
				inBubble(t, func(b *bench) {
					if before {
						breaks(b)
					}
					b.node()
					_, stop := b.source()
					b.settle()
					breaks(b)
					time.Sleep(5 * time.Minute)
					begin := time.Now()
					stop()
					if took := time.Since(begin); took > time.Second {
						t.Errorf("it took %v", took)
					}
				})
			}
		})
	}
}

// At rest nothing is asked beside the watches, which are renewed.
func TestASourceAtRestAsksForNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.server.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		b.put(pod("a"))
		b.source()
		b.settle()
		b.wantCalls()
		time.Sleep(time.Hour)
		if all := b.server.Calls(); len(all) > 2*13 {
			t.Errorf("%d requests in an hour: %v", len(all), all)
		}
	})
}
