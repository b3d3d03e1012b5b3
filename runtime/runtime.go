package runtime

import (
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Conditions a caller acts on. Engines wrap them; ask with errors.Is. What an engine has no way to
// do at all is errors.ErrUnsupported, what took too long context.DeadlineExceeded.
var (
	ErrNotFound        = errors.New("not found")
	ErrInUse           = errors.New("in use")
	ErrInProgress      = errors.New("in progress")
	ErrNetworkNotReady = errors.New("network is not ready")
	ErrNoCommand       = errors.New("no such command")          // a container does not have it, or may not run it
	ErrUnavailable     = errors.New("runtime is not available") // nobody answers; worth asking again
)

// Rejection is an error that ends a pod before it starts: phase Failed with this reason.
type Rejection struct {
	Reason, Message string
	Instead         []types.UID // pods that are ended in its place; then it is asked again
}

func (r *Rejection) Error() string { return r.Reason + ": " + r.Message }

// PodRef names a pod.
type PodRef struct {
	Namespace, Name string
	UID             types.UID
}

// String is namespace/name(uid).
func (r PodRef) String() string { return r.Namespace + "/" + r.Name + "(" + string(r.UID) + ")" }

// Pod is what exists of a pod: seen, not wished for. The zero value with a UID is a pod of which
// nothing exists.
type Pod struct {
	PodRef
	IPs        []string           // of the newest sandbox; the first is the pod IP. Kept after the sandbox ended
	Sandboxes  []Sandbox          // newest first
	Containers []Container        // newest first
	Waiting    map[string]Waiting // why containers do not run, by container name
	Applied    map[string]Sizes   // what running containers were given, by container name; one that is not in it: not known
	Level      *Sizes             // what the pod as a whole was given, where its spec says that; nil: it does not, or not known
	At         time.Time          // just before the look was taken, with monotonic reading
}

// Clone is a copy whose Waiting map may be changed.
func (p Pod) Clone() Pod { p.Waiting = maps.Clone(p.Waiting); return p }

// Running says that something of the pod may still run: a container that has not ended, or a ready
// sandbox.
func (p Pod) Running() bool {
	for _, s := range p.Sandboxes {
		if s.Ready {
			return true
		}
	}
	return p.ContainersRunning()
}

// ContainersRunning says that a container may still run.
func (p Pod) ContainersRunning() bool {
	for _, c := range p.Containers {
		if c.State == Running || c.State == Unknown {
			return true
		}
	}
	return false
}

// Newest is the newest instance of the container of that name, nil when there is none.
func (p Pod) Newest(name string) *Container {
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i]
		}
	}
	return nil
}

// Waiting says why the container of that name does not run: CrashLoopBackOff, ErrImagePull, ...
type Waiting struct {
	Reason, Message string
	Until           time.Time // when it is tried again; zero when that is not known
}

// Sizes are what a container asks for and is limited to. Zero is nothing said.
type Sizes struct {
	CPURequest, CPULimit       int64 // thousandths of a processor
	MemoryRequest, MemoryLimit int64 // bytes
}

// WaitingError is an error that keeps a container from running, in the words its pod's status shows.
type WaitingError struct {
	Waiting
	Err error // what happened; nil when Message says all
}

func (e *WaitingError) Error() string {
	if e.Message == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Message
}

func (e *WaitingError) Unwrap() error { return e.Err }

// State of a container. The zero value is Unknown: the engine cannot tell.
type State uint8

const (
	Unknown State = iota
	Created
	Running
	Exited
)

func (s State) String() string {
	return [...]string{"unknown", "created", "running", "exited"}[min(s, Exited)]
}

// Sandbox is the frame the containers of a pod share: network, IPC, sometimes processes.
type Sandbox struct {
	PodRef
	ID           string
	Attempt      uint32 // 0 for the first of a pod, then one more each time
	Ready        bool
	Created      time.Time
	Labels       map[string]string
	Annotations  map[string]string
	Handler      string
	IPs          []string // complete looks only
	NetworkKnown bool     // complete looks only: the engine says how the network is, so that no IP means none
	HostNetwork  bool     // complete looks only
}

// Container is one instance of a container of a pod. Started and all that follows is filled by complete looks only.
type Container struct {
	Pod         PodRef
	ID          string
	Name        string // as in the pod spec
	SandboxID   string
	Restarts    int    // instances of this name before this one, at least
	Image       string // as the user wrote it
	ImageID     string // as the engine knows it: what image collection must keep
	ImageRef    string // with digest where there is one: what the pod status shows; complete looks only
	State       State
	Labels      map[string]string
	Annotations map[string]string
	Created     time.Time

	Started, Finished time.Time // zero: not yet
	ExitCode          int32
	Reason, Message   string
	Resources         *Resources // as the kernel has them; nil when not known
	Mounts            []Mount
	LogPath           string
	Devices           []DeviceHealth
	User              *User // whom its first process began as; nil when not known
}

// User is whom a process runs as.
type User struct {
	UID, GID int64
	Groups   []int64 // supplementary ones
}

// Hash is the fingerprint of the spec that the container was made from, empty when it has none.
func (c *Container) Hash() string { return c.Annotations[AnnotationHash] }

// DeviceHealth of one device a container holds.
type DeviceHealth struct{ Resource, ID, Health string }

// Labels and annotations with which the kubelet marks what it makes; crictl, log shippers and
// monitoring agents read them. Engines that keep no typed pod identity store it in the labels.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                    = "io.kubernetes.container.ports"
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
)

// Outcome of a health check as far as decided. The zero value means no check has decided yet.
type Outcome uint8

const (
	Undecided Outcome = iota
	Passing
	Failing
)

func (o Outcome) String() string {
	return [...]string{"undecided", "passing", "failing"}[min(o, Failing)]
}

// ProbeResult is what probes say about one container instance. A kind of probe the container does
// not have stays Undecided.
type ProbeResult struct{ Liveness, Readiness, Startup Outcome }

// ProbeResults by container ID.
type ProbeResults map[string]ProbeResult

// Volume is where a pod volume lies on this host once it is in place.
type Volume struct {
	Path        string // directory or file; empty for an image volume
	Device      string // block device instead of Path
	Image       string
	ReadOnly    bool
	Relabel     bool
	ExtraGroups []int64
	// Check, unless nil, is asked each time a container is made with the volume: an error keeps that container from being made,
	// and no other one. It is for what may go away while the pod runs and must not be made up by a container runtime.
	Check func() error
}

// Network is what a pod got from the network joint; the zero value leaves it to the engine.
type Network struct {
	NetNS string
	IPs   []string
}

// SyncInput is what the other joints hold ready for one step of a pod.
type SyncInput struct {
	Seen         Pod
	ProbeResults ProbeResults
	Volumes      map[string]Volume // by volume name; nil when there is no volume joint
	Network      Network           // zero: the engine sees to it
}

// SyncResult is what a step did and leaves to do.
type SyncResult struct {
	Acted   bool      // this call changed something: look again at once; false for a pod that is as wished for
	RetryAt time.Time // when to try again; zero: not until something changes
	Resize  error     // why containers that run could not be given their new sizes; nil: they were, or had them, or Applied shows that it waits for RetryAt
}

// Termination says how and why a pod is stopped.
type Termination struct {
	Grace           time.Duration // zero: the pod's own; never lengthens one that runs
	Reason, Message string        // into the pod's status; empty: phase follows the exit codes
	Disruption      bool          // adds condition DisruptionTarget
	Disrupted       string        // what that condition says; empty: Message
}

// Removal says how much of an ended pod goes.
type Removal uint8

const (
	Release Removal = iota // cgroups, devices, id ranges; dead containers and logs stay to be read
	Renew                  // everything but logs, by which is known how often containers have run: the pod begins anew
	Purge                  // everything
)

// Allocation is what a container gets of the node beyond its spec.
type Allocation struct {
	Devices     []Device
	Mounts      []Mount
	Env         []Env
	Annotations map[string]string
	CDI         []string
	CPUs, Mems  string
}
