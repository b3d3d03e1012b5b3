package main

import (
	"path/filepath"
	"testing"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/stats"
)

func TestWhereTheContainerRuntimeKeepsThingsDecidesWhatCountsForWhichDisk(t *testing.T) {
	dir := t.TempDir()
	beside, apart := filepath.Dir(dir), "/proc"
	for name, c := range map[string]struct {
		images, containers string
		want               eviction.Layout
	}{
		"one disk":           {beside, beside, eviction.OneDisk},
		"both apart":         {apart, apart, eviction.ImagesApart},
		"images alone apart": {apart, beside, eviction.Split},
		"it does not say":    {apart, "", eviction.ImagesApart},
	} {
		e := runtimetest.New()
		e.ImageDir, e.WriteDir = c.images, c.containers
		figures, err := stats.New(stats.Config{RootDir: dir, Engine: e})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (guarded{figures: figures}).layout(t.Context()); err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}
