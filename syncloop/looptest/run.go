package looptest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// Fixture is a Runtime and what the suite must know to make pods for it. Runtime and Container are required; rules that need
// what is not there are left out.
type Fixture struct {
	Runtime syncloop.Runtime

	// What runs in pods, as this runtime takes it: image, command and the like. Names are given by the suite.
	Container v1.Container                  // runs until it is asked to end, and then ends soon
	Ends      func(code int32) v1.Container // ends by itself within moments of its start, with exit code 0 or 3; nil: there is no such one
	Deaf      *v1.Container                 // runs, and hears nothing when it is asked to end: only the end of its grace ends it; nil: there is no such one
	Broken    *v1.Container                 // cannot be started, such as for want of its image; nil: there is no such one

	// Next is another Runtime over the same world, as the next process makes it; the one before is not used any more. nil:
	// nothing outlives the process.
	Next func() syncloop.Runtime

	Notifier runtime.Notifier // as it would be given to pleg; nil: changes are found by listing

	// Pod makes what the suite asks for a pod this runtime takes: namespace, host network, labels; where pods are of one container
	// it keeps the first. nil: it is taken as it is.
	Pod func(pod *v1.Pod)

	// Patience is how long a pod may take to come up, or to end once it was asked to or its grace is over. A call whose context
	// has ended must return within a third of that. 0 means 30 s.
	Patience time.Duration

	// Except are rules that this runtime does not keep, by name, and why. They are left out.
	Except map[string]string
}

// Run checks that a runtime keeps the rules of this package, each in a subtest of its name. open is called once for each, and
// once before them; it may give a world of its own or one that all share: the suite makes pods under uids of its own, looks at
// no others, and takes away what it made. Subtests run side by side. Rules that the first fixture leaves out have none, and are
// told in the log, with the reason.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	t.Helper()
	first := open(t)
	if err := first.check(); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules() {
		if why := first.leavesOut(r); why != "" {
			t.Logf("not tested: %s: %s", r.name, why)
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(newScene(t, r.name, open(t)))
		})
	}
}

// check says what is wrong with a fixture.
func (f *Fixture) check() error {
	for excepted := range f.Except {
		if !slices.ContainsFunc(rules(), func(r rule) bool { return r.name == excepted }) {
			return fmt.Errorf("Fixture.Except[%q]: there is no such rule; take a name from the documentation of looptest", excepted)
		}
	}
	switch {
	case f.Runtime == nil:
		return errors.New("Fixture.Runtime is nil: open must give the runtime that is to be tested")
	case f.Patience < 0:
		return fmt.Errorf("Fixture.Patience %v must not be negative", f.Patience)
	}
	return nil
}

// leavesOut is why a rule cannot be tested with a fixture, or empty.
func (f *Fixture) leavesOut(r rule) string {
	if why, excepted := f.Except[r.name]; excepted {
		return "excepted: " + why
	}
	if has := map[string]bool{
		"": true, "Ends": f.Ends != nil, "Deaf": f.Deaf != nil, "Broken": f.Broken != nil, "Next": f.Next != nil, "Notifier": f.Notifier != nil,
	}; !has[r.needs] {
		return "Fixture." + r.needs + " is nil"
	}
	return ""
}

// rule is a promise and the check of it.
type rule struct {
	name  string
	needs string // a field of the Fixture, such as Deaf; empty: none
	check func(*scene)
}

func rules() []rule {
	return slices.Concat(lookRules(), syncRules(), stopRules(), removeRules(), agentRules(), hearRules())
}

// scene is one rule under test.
type scene struct {
	*testing.T
	Fixture
	rule string
	ctx  context.Context // ends with the test, in ten times the patience at the latest
	made map[types.UID]*v1.Pod
}

func newScene(t *testing.T, name string, f Fixture) *scene {
	t.Helper()
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	f.Patience = cmp.Or(f.Patience, 30*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 10*f.Patience)
	t.Cleanup(cancel)
	s := &scene{T: t, Fixture: f, rule: name, ctx: ctx, made: map[types.UID]*v1.Pod{}}
	t.Cleanup(s.clean)
	return s
}

// clean takes away all pods of the scene.
func (s *scene) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.Patience)
	defer cancel()
	s.ctx = ctx
	var errs []error
	for uid, pod := range s.made {
		_, err := s.end(uid, pod, runtime.Termination{Grace: 2 * time.Second})
		errs = append(errs, err, s.Runtime.Remove(ctx, uid, runtime.Purge))
	}
	if err := errors.Join(errs...); err != nil {
		s.Logf("what the suite made is not all gone: %v", err)
	}
}

// pod is a new one, which the scene takes away at its end.
func (s *scene) pod(containers ...v1.Container) *v1.Pod {
	n, m := rand.Uint64(), rand.Uint64()
	uid := fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", n>>32, n>>16&0xffff, n&0xffff, m>>48, m&(1<<48-1))
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "looptest", Name: "contract-" + uid[:8], UID: types.UID(uid), Generation: 1, CreationTimestamp: metav1.Now(),
		},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(10)), DNSPolicy: v1.DNSDefault,
			SecurityContext: &v1.PodSecurityContext{}, EnableServiceLinks: new(false),
		},
	}
	for i, c := range containers {
		c := *c.DeepCopy()
		c.Name = string(rune('a' + i))
		c.ImagePullPolicy = cmp.Or(c.ImagePullPolicy, v1.PullIfNotPresent)
		c.TerminationMessagePath = cmp.Or(c.TerminationMessagePath, "/dev/termination-log")
		c.TerminationMessagePolicy = cmp.Or(c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if s.Pod != nil {
		s.Pod(p)
	}
	s.made[p.UID] = p
	return p
}

// fault is a rule that was seen to be broken, and what to do about it.
type fault struct{ seen, remedy string }

func (f *fault) Error() string { return "seen:   " + f.seen + "\n  remedy: " + f.remedy }

func broken(remedy, seen string, args ...any) error {
	return &fault{seen: fmt.Sprintf(seen, args...), remedy: remedy}
}

// keeps ends the test when the rule is broken.
func (s *scene) keeps(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("broken: %s\n  %v", s.rule, err)
	}
}

// soon is how long a call may take that has been cut.
func (s *scene) soon() time.Duration { return s.Patience / 3 }
