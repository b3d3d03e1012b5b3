package imagegc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// library is a disk with images on it, and the containers that use them. Images made of one base share its bytes.
type library struct {
	t          *testing.T
	capacity   int64
	other      int64 // bytes used by something else
	base, own  map[string]int64
	images     []runtime.Image
	containers []runtime.Container
	mounts     map[string][]runtime.Mount
	fail       map[string]error // removing that image
	frozen     bool             // the disk does not show what is removed
	used       int64            // what it shows then
	removed    []string
	looks      int // at single containers

	mu       sync.Mutex // guards the rest
	measured error
	events   []string
}

// measure has the disk be looked at without an error, or with one.
func (l *library) measure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measured = err
}

func newLibrary(t *testing.T, capacity int64, images ...runtime.Image) *library {
	t.Helper()
	return &library{t: t, capacity: capacity, images: images, fail: map[string]error{}, mounts: map[string][]runtime.Mount{}}
}

func (l *library) ListImages(context.Context) ([]runtime.Image, error) {
	return slices.Clone(l.images), nil
}

func (l *library) RemoveImage(_ context.Context, id string) error {
	if err := l.fail[id]; err != nil {
		return err
	}
	l.removed = append(l.removed, id)
	l.images = slices.DeleteFunc(l.images, func(i runtime.Image) bool { return i.ID == id })
	return nil
}

func (l *library) ListContainers(context.Context, runtime.Filter) ([]runtime.Container, error) {
	return slices.Clone(l.containers), nil
}

func (l *library) Container(_ context.Context, id string) (runtime.Container, error) {
	l.looks++
	for _, c := range l.containers {
		if c.ID == id {
			c.Mounts = l.mounts[id]
			return c, nil
		}
	}
	return runtime.Container{}, runtime.ErrNotFound
}

func (l *library) ImageDisk(context.Context) (capacity, available int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.measured != nil {
		return 0, 0, l.measured
	}
	if l.frozen {
		return l.capacity, l.capacity - l.used, nil
	}
	used, bases := l.other, map[string]bool{}
	for _, i := range l.images {
		if base, ok := l.base[i.ID]; ok {
			used += l.own[i.ID]
			if !bases["base"] {
				bases["base"], used = true, used+base
			}
			continue
		}
		used += i.Size
	}
	return l.capacity, l.capacity - used, nil
}

func (l *library) Event(e observe.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e.Reason)
}

func (l *library) collector(change func(*imagegc.Config)) *imagegc.Collector {
	l.t.Helper()
	cfg := imagegc.Config{Images: l, Users: l, Disk: l, Node: "n1", Observe: observe.To{Events: l}}
	if change != nil {
		change(&cfg)
	}
	c, err := imagegc.New(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *library) gone(want string) {
	l.t.Helper()
	if got := strings.Join(l.removed, " "); got != want {
		l.t.Errorf("removed %q, want %q", got, want)
	}
	l.removed = nil
}

func (l *library) told(want string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := strings.Join(l.events, " "); got != want {
		l.t.Errorf("events %q, want %q", got, want)
	}
	l.events = nil
}

func sized(id string, size int64) runtime.Image { return runtime.Image{ID: id, Size: size} }

func TestCollectWaitsForTheHighMarkAndStopsAtTheLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t, 100, sized("a", 3), sized("b", 3), sized("c", 3), sized("d", 3))
		l.other = 72
		c := l.collector(nil)
		if err := c.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		l.gone("") // 84 percent
		l.other++
		if err := c.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		l.gone("a b") // five bytes
		l.told("")
	})
}

func TestCollectSaysWhenThereIsNotEnoughToRemove(t *testing.T) {
	l := newLibrary(t, 100, sized("a", 3), sized("b", 3))
	l.other = 90
	l.containers = []runtime.Container{{ID: "x", ImageID: "b", State: runtime.Exited}}
	err := l.collector(nil).Collect(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "Insufficient free disk space on the node's image filesystem (93% of 100 B used). Failed to free sufficient space by deleting unused images (freed 3 bytes). ") {
		t.Error(err)
	}
	l.gone("a")
	l.told("FreeDiskSpaceFailed")
}

func TestADiskWithoutCapacityIsReported(t *testing.T) {
	l := newLibrary(t, 0, sized("a", 3))
	if err := l.collector(nil).Collect(t.Context()); err == nil || err.Error() != "invalid capacity 0 on image filesystem" {
		t.Error(err)
	}
	l.gone("")
	l.told("InvalidDiskCapacity")
}

func TestReclaimTakesAllThatIsOldEnoughAndUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t, 100, sized("a", 3), sized("used", 3), runtime.Image{ID: "pause", Pinned: true}, sized("starting", 1), sized("stuck", 1), sized("z", 1))
		l.containers = []runtime.Container{{ID: "x", ImageID: "used", State: runtime.Created}}
		l.fail["starting"] = fmt.Errorf("about to be used: %w", runtime.ErrInUse)
		l.fail["stuck"] = errors.New("layer is busy")
		c := l.collector(nil)
		if err := c.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		l.images = append(l.images, sized("new", 1))
		err := c.Reclaim(t.Context())
		if err == nil || !strings.Contains(err.Error(), "layer is busy") || strings.Contains(err.Error(), "about to be") {
			t.Error(err)
		}
		l.gone("a z")
		time.Sleep(2 * time.Minute)
		_ = c.Reclaim(t.Context())
		l.gone("new")
	})
}

func TestMountsAreLookedAtOncePerContainer(t *testing.T) {
	l := newLibrary(t, 100, sized("app", 1), sized("data", 1))
	l.containers = []runtime.Container{{ID: "x", ImageID: "app"}}
	l.mounts["x"] = []runtime.Mount{{Image: "data"}, {HostPath: "/"}}
	c := l.collector(nil)
	for range 3 {
		if err := c.Reclaim(t.Context()); err != nil {
			t.Error(err)
		}
	}
	l.gone("")
	if l.looks != 1 {
		t.Errorf("%d looks", l.looks)
	}
}

func TestRunAndTheOtherMethodsGoSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLibrary(t, 100).collector(nil)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, run := range []func(context.Context) error{c.Run, c.Run, c.Collect, c.Reclaim} {
			all.Go(func() { _ = run(ctx) })
		}
		time.Sleep(20 * time.Minute)
		stop()
		all.Wait()
	})
}

func TestRunTellsOfFailureFromTheSecondInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t, 100)
		l.measure(errors.New("not yet"))
		c := l.collector(nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		l.told("")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		l.told("ImageGCFailed")
		l.measure(nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		l.measure(errors.New("again"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		l.told("")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPlanRemovesNothing(t *testing.T) {
	l := newLibrary(t, 100, runtime.Image{ID: "a", Tags: []string{"app:1"}, Size: 50}, sized("b", 50))
	steps, err := l.collector(nil).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.gone("")
	got := fmt.Sprint(steps[0].Remove, steps[0].Name, steps[0].Why, steps[1].Remove, steps[1].Why)
	if want := "trueapp:1the disk is filling up, and nobody was seen using itfalsenobody uses it, but there is room"; got != want {
		t.Error(got)
	}
}

func TestPlanReclaimIsWhatReclaimRemoves(t *testing.T) {
	l := newLibrary(t, 1000, sized("a", 50), sized("b", 50), runtime.Image{ID: "c", Size: 50, Pinned: true})
	l.containers = []runtime.Container{{ID: "1", ImageID: "b"}}
	c := l.collector(nil)
	steps, err := c.PlanReclaim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, fmt.Sprintf("%s %v: %s", s.ID, s.Remove, s.Why))
	}
	if diff := cmp.Diff([]string{"a true: nobody was seen using it", "c false: it is pinned", "b false: a container uses it"}, got); diff != "" {
		t.Error(diff)
	}
	l.gone("")
	if err := c.Reclaim(t.Context()); err != nil {
		t.Error(err)
	}
	l.gone("a")
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	l := newLibrary(t, 1)
	for name, c := range map[string]imagegc.Config{
		"nothing":         {},
		"low above high":  {Images: l, Users: l, Disk: l, High: 50, Low: 60},
		"high above 100":  {Images: l, Users: l, Disk: l, High: 101},
		"a negative age":  {Images: l, Users: l, Disk: l, MaxAge: -1},
		"low is default":  {Images: l, Users: l, Disk: l, High: 70},
		"negative period": {Images: l, Users: l, Disk: l, Interval: -1},
	} {
		if _, err := imagegc.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Ten images listed with 1 GB each share 800 MB; 500 MB are needed.
func TestCase_c065_shared_layers(t *testing.T) {
	l := newLibrary(t, 10_000)
	l.base, l.own = map[string]int64{}, map[string]int64{}
	for i := range 10 {
		id := fmt.Sprintf("i%d", i)
		l.images = append(l.images, sized(id, 1000))
		l.base[id], l.own[id] = 800, 200
	}
	l.other = 8500 - 2800
	c := l.collector(nil)
	l.fail["i1"] = errors.New("layer is busy")
	if err := c.Collect(t.Context()); err == nil {
		t.Error("the image that could not be removed is not told of")
	}
	l.gone("i0 i2 i3") // 600 MB, and one that fails aborts nothing

	l.frozen, l.used = true, 8500 // a disk that does not show what was freed: by listed size
	_ = c.Collect(t.Context())
	l.gone("i4")
}

// One image came 40 minutes ago and was used until 2 minutes ago, another came 5 minutes ago and never was used.
func TestCase_c066_least_and_greatest_age_are_counted_from_different_moments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t, 1000)
		c := l.collector(func(c *imagegc.Config) { c.MinAge, c.MaxAge = 30*time.Minute, 10*time.Minute })
		look := func(after time.Duration) {
			t.Helper()
			time.Sleep(after)
			if err := c.Collect(t.Context()); err != nil {
				t.Error(err)
			}
		}
		look(0)
		l.images = []runtime.Image{sized("used", 1)}
		l.containers = []runtime.Container{{ID: "x", ImageID: "used"}}
		look(0)
		look(35 * time.Minute)
		l.images = append(l.images, sized("fresh", 99))
		look(3 * time.Minute)
		l.containers = nil
		look(2 * time.Minute)
		l.gone("")
		if err := c.Reclaim(t.Context()); err != nil { // whatever the pressure, the fresh one stays
			t.Error(err)
		}
		l.gone("used")
	})
}

func TestCase_c067_unused_age_starts_anew_with_the_agent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t, 100, sized("a", 1), sized("used", 1))
		l.containers = []runtime.Container{{ID: "x", ImageID: "used", State: runtime.Running}}
		life := func(d time.Duration) *imagegc.Collector {
			c := l.collector(func(c *imagegc.Config) { c.MaxAge = time.Hour })
			for range d / (5 * time.Minute) {
				if err := c.Collect(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Minute)
			}
			return c
		}
		life(50 * time.Minute)
		life(20 * time.Minute)
		c := life(time.Hour)
		l.gone("")
		time.Sleep(time.Minute)
		l.containers = nil // it was used until the look before
		if err := c.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		l.gone("a")
	})
}

func TestCase_c068_images_without_tag(t *testing.T) {
	l := newLibrary(t, 100, runtime.Image{ID: "sha256:1", Digests: []string{"repo@sha256:a"}, Size: 50}, sized("sha256:2", 50))
	l.containers = []runtime.Container{{ID: "x", ImageID: "repo@sha256:a", Image: "elsewhere/repo:1"}}
	if err := l.collector(nil).Reclaim(t.Context()); err != nil {
		t.Error(err)
	}
	l.gone("sha256:2")
}

func TestCase_c069_many_tags_of_one_image(t *testing.T) {
	tagged := func(id string) runtime.Image {
		i := sized(id, 40)
		for n := range 40 {
			i.Tags = append(i.Tags, fmt.Sprintf("%s:%d", id, n))
		}
		return i
	}
	l := newLibrary(t, 100, tagged("I"), tagged("J"), sized("K", 20))
	l.containers = []runtime.Container{{ID: "x", ImageID: "I:17", Image: "I:17"}}
	if err := l.collector(nil).Collect(t.Context()); err != nil {
		t.Error(err)
	}
	l.gone("J") // once, as a whole, and that is enough
}
