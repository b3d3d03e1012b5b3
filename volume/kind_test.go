package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

func maps(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "maps.example"}}}
}

func TestAnotherKindLiesAmongTheOthersAndGoesWithThem(t *testing.T) {
	calls := 0
	other := func(c *volume.Config) {
		c.Other = func(_ context.Context, pod *v1.Pod, v *v1.Volume, dir string) (runtime.Volume, error) {
			calls++
			f, err := os.OpenFile(filepath.Join(dir, "map"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return runtime.Volume{}, err
			}
			defer f.Close()
			_, err = fmt.Fprintf(f, "%s of %s, %d\n", v.CSI.Driver, pod.Name, calls)
			return runtime.Volume{Path: dir}, err
		}
	}
	h := newHouse(t, other)
	pod := podWith("u", maps("west"), v1.Volume{Name: "cache"})
	var places map[string]runtime.Volume
	for range 2 {
		var err error
		if places, err = h.Mount(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if text, _ := os.ReadFile(places["west"].Path + "/map"); string(text) != "maps.example of web, 1\nmaps.example of web, 2\n" {
		t.Errorf("it has %q", text)
	}
	if want := h.root + "/pods/u/volumes/kubernetes.io~csi/west"; places["west"].Path != want {
		t.Errorf("it lies at %s, want %s", places["west"].Path, want)
	}
	if _, done, err := h.Subpath(t.Context(), "u", "west", "main", 0, "map"); err != nil {
		t.Error(err)
	} else {
		done()
	}
	// An agent that knows nothing of the kind takes it away.
	if err := newHouse(t, func(c *volume.Config) { c.Root, c.Mounter = h.root, h.fake }).Unmount(t.Context(), "u"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.root + "/pods/u"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func TestAnotherKindThatIsNotInPlace(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*volume.Config)
		want   string
	}{
		{"nobody knows it", func(*volume.Config) {}, `volume "west" : this agent cannot mount volumes of kind csi`},
		{"refused", func(c *volume.Config) { c.Other = answers(runtime.Volume{}, errors.New("no map")) }, `volume "west" : no map`},
		{"late", func(c *volume.Config) { c.Other = answers(runtime.Volume{}, runtime.ErrInProgress) }, runtime.ErrInProgress.Error()},
		{"nowhere", func(c *volume.Config) { c.Other = answers(runtime.Volume{ReadOnly: true}, nil) }, `volume "west" : nobody says where it lies`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t, c.change)
			_, err := h.Mount(t.Context(), podWith("u", maps("west")))
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, runtime.ErrInProgress) != (c.name == "late") {
				t.Errorf("%v, want %s", err, c.want)
			}
			if err := h.Unmount(t.Context(), "u"); err != nil {
				t.Error(err)
			}
		})
	}
}

func answers(v runtime.Volume, err error) func(context.Context, *v1.Pod, *v1.Volume, string) (runtime.Volume, error) {
	return func(context.Context, *v1.Pod, *v1.Volume, string) (runtime.Volume, error) { return v, err }
}
