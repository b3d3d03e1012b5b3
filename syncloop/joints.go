package syncloop

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// PodSource delivers pods. Run calls set with everything the source wants, each time that changes, and returns once ctx
// has ended; one that returns earlier is started again, and its set stays. complete is false while the set is only what
// was remembered: such pods run, but nothing is stopped for being absent from it. set blocks until the loop has taken the
// pods, which are read-only from then on; a changed pod is a new object.
//
// Pods are as an API server would hand them out: valid, with what it fills in, each with a name, a namespace and a uid of its
// own by which it is known ever after. staticpod.DecodeList makes such from a document, and refuses what could not run.
type PodSource interface {
	Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error
}

// Runtime makes pods real. Sync, Stop and Remove never overlap for one pod, return soon after ctx ends, and may be
// repeated: what was cut leaves nothing that the next call, by another process too, does not find and go on with. Pods and
// Pod come at any time, and do not wait for what is done to a pod meanwhile. Pods are known by uid, several of one name
// may be there; those handed in are shared and read-only. Package looptest checks these rules and says why each is one.
type Runtime interface {
	// Pods are all that exist, wanted or not, whoever asked for them, until they are removed; they may be shallow: names, IDs
	// and states, the same and in the same order as in a look. What is not listed is taken to be gone: a list that is not
	// whole is an error.
	Pods(ctx context.Context) ([]runtime.Pod, error)
	// Pod is one of them, complete, as it is now: what came of the last step shows. One that does not exist is empty, but for
	// UID and At, and no error. The newest sandboxes and instances come first; each has an ID of its own as long as it is seen.
	Pod(ctx context.Context, uid types.UID) (runtime.Pod, error)
	// Sync takes a pod nearer to what it is to be; what has ended, or whose liveness probe fails, it starts again as the
	// restart policy says. Acted, beside an error too, brings the next call at once, RetryAt at its time, an error after a
	// second and then more seldom. Without these it comes when somebody wakes the pod, as pleg does when Pods show a change,
	// else at the next resync: so it is with runtime.ErrInProgress, which is told to nobody. A pod that is as it is to be gets
	// no Acted and no error. An error is told in the log and as an event; the status says why a container does not run only
	// by runtime.Pod.Waiting.
	Sync(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error)
	// Stop returns nil only when nothing of the pod runs, and nothing of it starts again; that holds of a pod that is gone.
	// What runs is asked to end and has the grace that how says, or its own. When ctx ends before, it keeps the rest of it:
	// the next call goes on, maybe with less. pod is nil when nobody knows the spec any more. runtime.ErrInProgress: Pods
	// will show that something ended.
	Stop(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error
	// Remove takes away what is left of a pod that does not run. After Release what has ended is still seen, with its exit
	// codes; after the others nothing is, and the pod may begin anew. One that is gone is no error.
	Remove(ctx context.Context, uid types.UID, what runtime.Removal) error
}

// Network gives a pod its namespace and addresses before its sandbox and takes them back after the last container. Setup
// of a pod that has them answers the same again. Pods in the host's network are not its business.
type Network interface {
	Setup(ctx context.Context, pod *v1.Pod) (runtime.Network, error)
	Teardown(ctx context.Context, uid types.UID) error
}

// Volumes puts a pod's volumes in place before its containers start and takes them away after they ended. What must be
// waited for goes on by itself: the call answers runtime.ErrInProgress, and the pod is woken when there is more to say.
type Volumes interface {
	Mount(ctx context.Context, pod *v1.Pod) (map[string]runtime.Volume, error)
	Unmount(ctx context.Context, uid types.UID) error
}

// StatusSink is told how pods are, one call at a time for one pod, and often what it knows already: a status.Manager in
// front of it leaves that out. Another error than those below has it told once more, seconds later. Finished is the last
// call: the node has everything back, the object may go; it comes again only for a pod that is deleted after it finished. It
// alone says that a pod from a file is over: as for the kubelet, its phase stays Running where its restart policy would have
// started it again. runtime.ErrNotFound says that the object is gone already; status.ErrRefused about the last status of a
// pod keeps nothing of it.
type StatusSink interface {
	UpdateStatus(ctx context.Context, pod *v1.Pod, s v1.PodStatus) error
	Finished(ctx context.Context, pod *v1.Pod) error
}

// Admitter may refuse a pod with a *runtime.Rejection; any other error is logged and refuses nothing. others are the pods
// that hold resources now. It is asked in the loop's own goroutine, so it must answer from memory. Where a rejection names
// others in Instead, and no other admitter refuses, those are ended, and it is asked again when nothing of them runs.
type Admitter interface {
	Admit(ctx context.Context, pod *v1.Pod, others []*v1.Pod) error
}

// Probes watch over running containers. No method blocks.
type Probes interface {
	Track(pod *v1.Pod, seen runtime.Pod, ending bool) // have exactly the right probes under way
	Results(uid types.UID) runtime.ProbeResults
	Forget(uid types.UID)
}

// States shows what was seen after that moment, from memory or by a look; zero takes what there is. pleg's cache does.
type States interface {
	Pod(ctx context.Context, uid types.UID, after time.Time) (runtime.Pod, error)
}

// Sweeper forgets what belongs to pods that are no more. It is called once all sources were complete, then at each resync.
type Sweeper interface {
	Sweep(ctx context.Context, keep func(types.UID) bool) error
}
