package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/stats"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestDriver(t *testing.T) {
	type answer struct {
		driver string
		err    error
	}
	down := answer{err: runtime.ErrUnavailable}
	for _, c := range []struct {
		rule    string
		answers []answer
		want    string
		took    time.Duration
	}{
		{"the runtime knows best", []answer{{driver: "systemd"}}, "systemd", 0},
		{"one that does not say has the configuration's", []answer{{}}, "cgroupfs", 0},
		{"so has one that cannot", []answer{{err: errors.ErrUnsupported}}, "cgroupfs", 0},
		{"one that is just starting is waited for", []answer{down, down, {driver: "systemd"}}, "systemd", 2 * time.Second},
		{"but not for long", []answer{down, down, down, {driver: "systemd"}}, "cgroupfs", 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, asked := time.Now(), 0
			g := grouping{o: &options{kubelet: &v1beta1.KubeletConfiguration{CgroupDriver: "cgroupfs"}}, info: func(context.Context) (runtime.Info, error) {
				a := c.answers[asked]
				asked++
				return runtime.Info{CgroupDriver: a.driver}, a.err
			}}
			if got := g.driver(t.Context()); got != c.want || time.Since(began) != c.took {
				t.Errorf("%s: %s after %v, want %s after %v", c.rule, got, time.Since(began), c.want, c.took)
			}
		})
	}
}

// Field report kubernetes/kubernetes#134743: tools that read /configz put their cgroups elsewhere than pods have theirs.
func TestTheRuntimesDriverIsTheConfigurations(t *testing.T) {
	var b build
	k := &v1beta1.KubeletConfiguration{CgroupDriver: "cgroupfs", CgroupsPerQOS: new(true)}
	g := newGroups(t.Context(), &b, grouping{
		o: &options{kubelet: k}, machine: func() (stats.Machine, error) { return stats.Machine{}, nil }, roster: new(syncloop.Roster),
		info: func(context.Context) (runtime.Info, error) { return runtime.Info{CgroupDriver: "systemd"}, nil },
	})
	if b.err != nil || k.CgroupDriver != "systemd" || g.all != "/kubepods.slice" {
		t.Errorf("%v: /configz says %s, pods lie in %s", b.err, k.CgroupDriver, g.all)
	}
}

func TestAllocatable(t *testing.T) {
	machine := stats.Machine{Cores: 4, Memory: 8 << 30, HugePages: map[int64]int64{2 << 20: 16}}
	for _, c := range []struct {
		rule     string
		enforced bool
		kube     map[string]string
		want     string
	}{
		{"all there is", false, map[string]string{"memory": "1Gi"}, "cpu=4 hugepages-2Mi=32Mi memory=8Gi"},
		{"without what is reserved", true, map[string]string{"memory": "1Gi", "cpu": "500m"}, "cpu=3 hugepages-2Mi=32Mi memory=5Gi"},
		{"never less than nothing", true, map[string]string{"memory": "100Gi", "cpu": "7"}, "cpu=0 hugepages-2Mi=32Mi memory=0"},
	} {
		g := grouping{
			o:       &options{kubelet: &v1beta1.KubeletConfiguration{KubeReserved: c.kube, SystemReserved: map[string]string{"memory": "2Gi", "cpu": "500m"}}},
			machine: func() (stats.Machine, error) { return machine, nil },
		}
		f, err := g.allocatable(c.enforced)
		if err != nil {
			t.Fatal(err)
		}
		all := f()
		if pids := all["pid"]; pids.Sign() <= 0 {
			t.Errorf("%s: %s processes", c.rule, pids.String())
		}
		delete(all, "pid")
		if got := amounts(all); got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
	g := grouping{o: &options{kubelet: &v1beta1.KubeletConfiguration{KubeReserved: map[string]string{"pods": "1"}}}}
	if _, err := g.allocatable(true); err == nil {
		t.Error("pods may not be reserved")
	}
}

func amounts(all v1.ResourceList) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		q := all[name]
		words = append(words, string(name)+"="+resource.NewMilliQuantity(q.MilliValue(), resource.BinarySI).String())
	}
	return strings.Join(words, " ")
}

func TestPlaceThatIsNotThere(t *testing.T) {
	made := func(root string, qos bool) (groups, error) {
		var b build
		o := &options{kubelet: &v1beta1.KubeletConfiguration{CgroupRoot: root, CgroupsPerQOS: &qos}}
		g := newGroups(t.Context(), &b, grouping{
			o: o, roster: new(syncloop.Roster), machine: func() (stats.Machine, error) { return stats.Machine{}, errors.New("none") },
			info: func(context.Context) (runtime.Info, error) { return runtime.Info{CgroupDriver: "cgroupfs"}, nil },
		})
		return g.checked(&b, o, slog.New(slog.DiscardHandler)), b.err
	}
	if _, err := made("no/such/place", true); err == nil || !strings.Contains(err.Error(), "--cgroup-root") {
		t.Errorf("a root that was given and is not there: %v", err)
	}
	g, err := made("some/place", false)
	if err != nil || g.all != "" || g.of() != nil || g.kill() != nil || len(g.sweepers())+len(g.runners()) > 0 {
		t.Errorf("no cgroups are wished for: %+v, %v", g, err)
	}
	if got := g.ofPods().Parent(nil); got != "/some/place" {
		t.Errorf("sandboxes lie in %s", got)
	}
}

func TestRuntimeThatNamesCgroupsOtherwiseEndsTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{runtime.ErrUnavailable, nil}
		w := &runtimeWatch{
			log: slog.New(slog.DiscardHandler), back: func() {}, fits: func(i runtime.Info) error { return errors.New(i.CgroupDriver + " does not fit") },
			info: func(context.Context) (runtime.Info, error) {
				err := answers[0]
				answers = answers[1:]
				return runtime.Info{CgroupDriver: "systemd", Ready: runtime.Condition{OK: true}}, err
			},
		}
		if err := w.Run(t.Context()); err == nil || err.Error() != "systemd does not fit" {
			t.Error(err)
		}
	})
}
