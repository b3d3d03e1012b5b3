package pleg_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// quiet is a source in which nothing happens.
type quiet struct {
	all   []runtime.Pod
	byUID map[types.UID]runtime.Pod
}

func (q quiet) Pods(context.Context) ([]runtime.Pod, error)               { return q.all, nil }
func (q quiet) Pod(_ context.Context, uid types.UID) (runtime.Pod, error) { return q.byUID[uid], nil }

func quietNode(b *testing.B, pods int) *pleg.Generator {
	b.Helper()
	q := quiet{byUID: map[types.UID]runtime.Pod{}}
	for i := range pods {
		p := parsePod([]string{fmt.Sprint("p", i), "s1+", "c1+", "c2+"})
		q.all, q.byUID[p.UID] = append(q.all, p), p
	}
	g, err := pleg.New(pleg.Config{Source: q})
	if err != nil {
		b.Fatal(err)
	}
	if err := g.Relist(b.Context()); err != nil {
		b.Fatal(err)
	}
	return g
}

// BenchmarkRelist is one listing in which nothing has changed.
func BenchmarkRelist(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n, "pods"), func(b *testing.B) {
			g := quietNode(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Relist(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPodFromMemory(b *testing.B) {
	g := quietNode(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Pod(b.Context(), "p0", time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
}
