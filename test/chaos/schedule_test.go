package chaos

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// slots is how many pods come and go.
const slots = 7

// op is one change among the manifests.
type op struct {
	at       time.Duration // since the agent started; negative: before it does
	slot     int
	kind     string // empty: the manifest is deleted
	revision int
}

func (o op) file() string { return fmt.Sprintf("churn-%d.yaml", o.slot) }
func (o op) pod() string  { return fmt.Sprintf("churn-%d", o.slot) }

func (o op) String() string {
	if o.kind == "" {
		return fmt.Sprintf("%v: delete %s", round(o.at), o.pod())
	}
	return fmt.Sprintf("%v: write %s as %s, revision %d", round(o.at), o.pod(), o.kind, o.revision)
}

// churn makes up changes. Half of them are new pods, and what a pod is replaced by is of any kind.
type churn struct {
	random   *rand.Rand
	kinds    []kind
	there    [slots]bool
	revision int
}

func (c *churn) next(at time.Duration) op {
	o := op{at: at, slot: c.random.IntN(slots)}
	if c.there[o.slot] = !c.there[o.slot] || c.random.IntN(2) == 0; c.there[o.slot] {
		c.revision++
		o.kind, o.revision = c.kinds[c.random.IntN(len(c.kinds))].name, c.revision
	}
	return o
}

// lifetime is how long the agent lives and which manifests change meanwhile, until it is killed.
type lifetime struct {
	lasts time.Duration
	upon  *cri.ContainerEventType // when the runtime tells of this, it ends sooner; nil: it does not
	ops   []op
}

func (l lifetime) String() string {
	if l.upon != nil {
		return fmt.Sprintf("%v, or until %v, with %v", round(l.lasts), l.upon, l.ops)
	}
	return fmt.Sprintf("%v, with %v", round(l.lasts), l.ops)
}

// schedule makes up lives out of a seed. Most last up to 1.5 seconds, less than a pod needs to start and end; some last
// longer, and some end when the runtime has just done something, the instants at which most is half done.
func schedule(seed uint64, lives int) []lifetime {
	random := rand.New(rand.NewPCG(seed, 0))
	churn := churn{random: random, kinds: slices.Concat(services, jobs)}
	out := make([]lifetime, lives)
	for i := range out {
		l := lifetime{lasts: time.Duration(random.Int64N(int64(1500 * time.Millisecond)))}
		switch random.IntN(6) {
		case 0, 1:
			l.lasts *= 4
		case 2, 3:
			l.lasts = 4 * time.Second
			upon := cri.ContainerEventType(random.IntN(len(cri.ContainerEventType_name)))
			l.upon = &upon
		}
		if random.IntN(3) == 0 {
			l.ops = append(l.ops, churn.next(-time.Millisecond))
		}
		for at := time.Duration(0); ; {
			if at += time.Duration(random.Int64N(int64(time.Second))); at >= l.lasts {
				break
			}
			l.ops = append(l.ops, churn.next(at))
		}
		out[i] = l
	}
	return out
}

func TestScheduleIsRepeatable(t *testing.T) {
	a, b := schedule(7, 100), schedule(7, 100)
	if !reflect.DeepEqual(a, b) {
		t.Error("one seed made two schedules")
	}
	if reflect.DeepEqual(a, schedule(8, 100)) {
		t.Error("two seeds made one schedule")
	}
	kinds, deletions := map[string]bool{}, 0
	for _, l := range a {
		for _, o := range l.ops {
			if o.kind == "" {
				deletions++
			} else {
				kinds[o.kind] = true
			}
		}
	}
	if len(kinds) != len(services)+len(jobs) || deletions == 0 {
		t.Errorf("not everything happens: kinds %v, %d deletions", kinds, deletions)
	}
}
