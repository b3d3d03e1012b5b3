package kubeapi

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/status"
)

// typical is a pod as a cluster has them.
func typical(i int) *v1.Pod {
	p := pod(fmt.Sprintf("web-%d", i))
	p.UID = "0b1c9d8e-0000-4000-8000-000000000001"
	p.Labels = map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6"}
	for j := range 3 {
		c := v1.Container{Name: "c" + strconv.Itoa(j), Image: "registry.example.com/team/app:1.2.3"}
		for k := range 10 {
			c.Env = append(c.Env, v1.EnvVar{Name: "VARIABLE_" + strconv.Itoa(k), Value: "value"})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	p.Status = running("False")
	return p
}

// A list of 1,000 pods, then 1,000 changes one by one.
func BenchmarkSource(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		server := apifake.New()
		c, err := New(Config{REST: server.Config(), Node: "n1", QPS: 1e6, Burst: 1e6})
		if err != nil {
			b.Fatal(err)
		}
		server.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		pods := make([]*v1.Pod, 1000)
		for i := range pods {
			pods[i] = typical(i)
			pods[i].UID = ""
			pods[i] = server.Put(pods[i]).(*v1.Pod)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{}, 2)
		last := make(chan string, 2000)
		b.StartTimer()
		go func() { c.Run(ctx); done <- struct{}{} }()
		go func() {
			s := &Source{Client: c}
			s.Run(ctx, func(pods []*v1.Pod, _ bool) {
				newest := 0
				for _, p := range pods {
					n, _ := strconv.Atoi(p.ResourceVersion)
					newest = max(newest, n)
				}
				last <- strconv.Itoa(newest)
			})
			done <- struct{}{}
		}()
		<-last
		want := ""
		for _, p := range pods {
			p.Status = running("True")
			want = server.Put(p).GetResourceVersion()
		}
		for got := ""; got != want; {
			got = <-last
		}
		b.StopTimer()
		cancel()
		<-done
		<-done
		c.CloseIdle()
		server.Close()
		b.StartTimer()
	}
}

func BenchmarkStatusPatch(b *testing.B) {
	p := typical(1)
	for name, to := range map[string]v1.PodStatus{"equal": p.Status, "changed": running("True")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := statusPatch(p, status.Merge(p, to)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEvent(b *testing.B) {
	server := apifake.New()
	defer server.Close()
	c, err := New(Config{REST: server.Config(), Node: "n1"})
	if err != nil {
		b.Fatal(err)
	}
	e := NewEvents(c)
	b.ReportAllocs()
	for b.Loop() {
		e.correlate(queued{about("web", "Unhealthy", "no answer"), time.Now()})
	}
}
