package layers_test

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

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/layers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// part is one that says when it begins and ends.
type part struct {
	name string
	log  func(string)
	fail error
}

func (p part) Run(ctx context.Context) error {
	p.log(p.name + " runs")
	if p.fail == nil {
		<-ctx.Done()
	}
	p.log(p.name + " ends")
	return p.fail
}

func TestGroupsStopFromTheTopDown(t *testing.T) {
	for _, failing := range []string{"", "low", "middle", "high"} {
		t.Run(fmt.Sprintf("failing=%q", failing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var ends []string
				log := func(line string) {
					mu.Lock()
					defer mu.Unlock()
					if strings.HasSuffix(line, " ends") && !strings.HasPrefix(line, failing+" ") {
						ends = append(ends, line)
					}
				}
				broken := errors.New("broken")
				var groups [][]layers.Part
				var want []string
				for _, name := range []string{"low", "middle", "high"} {
					p := part{name: name, log: log}
					if name == failing {
						p.fail = broken
					} else {
						want = append([]string{name + " ends"}, want...)
					}
					groups = append(groups, []layers.Part{p})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := layers.Run(ctx, groups...)
				if errors.Is(err, broken) != (failing != "") || !slices.Equal(ends, want) {
					t.Errorf("error %v, ended %q, want %q", err, ends, want)
				}
			})
		})
	}
}
