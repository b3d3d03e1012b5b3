package runtime

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// SandboxConfig describes a sandbox to be made.
type SandboxConfig struct {
	Pod         PodRef
	Attempt     uint32
	Hostname    string // empty: the host's
	LogDir      string // where log files of its containers lie
	NetNS       string // path of a network namespace made by someone else; empty: the engine makes one
	Handler     string // runtime handler; empty: the default one
	DNS         *DNS   // nil: the host's
	Ports       []PortMapping
	Namespaces  Namespaces
	Security    Security
	Labels      map[string]string
	Annotations map[string]string
	Sysctls     map[string]string

	CgroupParent string    // empty: the engine's own place
	Resources    Resources // sum over the containers, for engines that size a sandbox (micro VMs)
	Overhead     Resources
}

// DNS is what becomes resolv.conf.
type DNS struct{ Servers, Searches, Options []string }

// PortMapping opens a container port on the host. A zero HostPort opens nothing and only informs.
type PortMapping struct {
	Protocol                string // TCP, UDP, SCTP
	ContainerPort, HostPort int32
	HostIP                  string // empty: all addresses
}

// Namespaces says which kernel namespaces a sandbox or container has of its own. The zero value is
// a pod's default: network and IPC of the sandbox, processes of the container alone.
type Namespaces struct {
	HostNetwork, HostPID, HostIPC bool
	SharePID                      bool   // one process namespace for the whole sandbox
	TargetPID                     string // ID of a container whose process namespace is joined
	Users                         []IDMapping
}

// IDMapping maps ids of a user namespace. Empty Namespaces.Users means no user namespace.
type IDMapping struct{ Container, Host, Length uint32 }

// ContainerConfig describes a container to be made.
type ContainerConfig struct {
	Pod         PodRef
	Name        string
	Attempt     uint32 // restart count
	Image       string // id or ref that PullImage or Image gave
	UserImage   string // as the user wrote it
	Command     []string
	Args        []string
	Dir         string
	Env         []Env
	Mounts      []Mount
	Devices     []Device
	CDI         []string
	Labels      map[string]string
	Annotations map[string]string
	LogPath     string // relative to SandboxConfig.LogDir
	Stdin       bool
	StdinOnce   bool
	TTY         bool
	StopSignal  string // SIGTERM, SIGRTMIN+3, ...; empty: the image's
	Resources   Resources
	Namespaces  Namespaces
	Security    Security

	Sandbox *SandboxConfig // what its sandbox was made from; engines that remember may ignore it
}

// Env is one environment variable.
type Env struct{ Name, Value string }

// Device is a host device shown to a container. Permissions are cgroup ones: some of r, w, m.
type Device struct{ HostPath, ContainerPath, Permissions string }

// Mount is a host path, or with Image the root of an image, shown to a container.
type Mount struct {
	HostPath, ContainerPath string
	Image, SubPath          string // of an image volume
	UserImage               string // of an image volume: as the user wrote it
	ReadOnly                bool
	Recursive               bool   // read-only for mounts below too
	Propagation             string // None (also empty), HostToContainer, Bidirectional
	Relabel                 bool
}

// Resources are limits in the kernel's units. Zero fields are unset, but CPUQuota -1 is unlimited.
type Resources struct {
	CPUShares   int64 // cgroup v1 shares
	CPUQuota    int64 // microseconds in each period
	CPUPeriod   int64 // microseconds
	Memory      int64 // bytes
	MemorySwap  int64 // bytes, memory included
	OOMScoreAdj int64
	CPUs, Mems  string // cpuset lists
	Hugepages   map[string]uint64
	Unified     map[string]string
}

// Security is what a sandbox or container may do. The zero value is the image's user with the
// engine's default rights.
type Security struct {
	UID, GID        *int64
	Username        string // when UID is nil; empty: the image's
	Groups          []int64
	GroupsPolicy    string // Merge (also empty), Strict
	Privileged      bool
	ReadOnlyRoot    bool
	NoNewPrivileges bool
	AddCaps         []string
	DropCaps        []string
	Seccomp         Profile
	AppArmor        Profile
	SELinux         *SELinux
	MaskedPaths     []string
	ReadonlyPaths   []string
}

// Profile of a security module. The zero value leaves it to the engine.
type Profile struct {
	Type ProfileType
	Path string // Localhost: file (seccomp) or profile name (AppArmor)
}

// ProfileType chooses a Profile.
type ProfileType uint8

const (
	EngineDefault  ProfileType = iota // nothing said
	RuntimeDefault                    // the engine's default profile
	Unconfined
	Localhost
)

// SELinux label parts.
type SELinux struct{ User, Role, Type, Level string }

// Filter narrows a listing. The zero value lists everything.
type Filter struct {
	Pod       types.UID
	OnlyAlive bool // ready sandboxes, running containers
}

// Event says that something about a container or sandbox changed; what, the receiver looks up, but for its removal.
type Event struct {
	Pod       PodRef
	Container string // its ID; the sandbox's when the sandbox itself changed
	At        time.Time

	// Gone says that the container or sandbox was removed: nothing with this ID exists any more, or ever will. Engines that do
	// not tell leave it false.
	Gone bool
}

// StreamOptions of an interactive session.
type StreamOptions struct{ Stdin, Stdout, Stderr, TTY bool }

// ExecResult of a command that ran to its end.
type ExecResult struct {
	Code   int
	Output []byte // stdout and stderr together
}

// Image is an image on this host.
type Image struct {
	ID            string
	Tags, Digests []string
	Size          int64  // bytes
	UID           *int64 // user the image runs as, where it is a number
	User          string // where it is a name
	Pinned        bool   // must not be collected
	Handler       string
}

// PullRequest asks for an image. Image and Handler name it, the rest is optional.
type PullRequest struct {
	Image, Handler string
	Auth           *Auth // nil: anonymous
	Annotations    map[string]string
	Sandbox        *SandboxConfig          // the pod that wants it; nil when nobody in particular
	Progress       func(done, total int64) // called as bytes come in, by engines that can tell
}

// Auth opens a registry.
type Auth struct{ Username, Password, Server, Token string }

// Credential is one way to open a registry, and whose it is. One without Secret and Account is the node's own: what it
// opens is open to every pod of the node.
type Credential struct {
	Auth
	Hash    string     // equal for equal credentials of a Secret; empty: not known
	Secret  *ObjectRef // where it was read from
	Account *ObjectRef // the service account it was given for
}

// ObjectRef names an API object of a namespace.
type ObjectRef struct {
	Namespace, Name string
	UID             types.UID
}

// Condition of an engine.
type Condition struct {
	OK              bool
	Reason, Message string
}

// Info is what an engine says of itself.
type Info struct {
	Name, Version  string // Name is the scheme of container IDs in a pod status
	Ready, Network Condition
	Handlers       []Handler
	CgroupDriver   string // systemd, cgroupfs; empty: it does not say
	GroupsPolicy   bool   // it follows the GroupsPolicy of pods and containers
}

// Handler is a configured way to run sandboxes.
type Handler struct {
	Name                        string // empty: the default one
	UserNamespaces, RecursiveRO bool
}

// Usage of a container at a moment, in bytes. What follows RootFS only some engines tell; it is zero where they do not.
type Usage struct {
	Container, Sandbox string // IDs; engines may leave that of the sandbox out
	At                 time.Time
	CPUNanos           int64 // processor time used since it started
	WorkingSet, RootFS int64

	Memory, RSS                 int64 // Memory counts what the kernel can drop at once, too
	PageFaults, MajorPageFaults int64 // how many since it started
	RootFSInodes                int64 // how many
	Swap, SwapAvailable         int64
	SwapKnown                   bool // otherwise these two are not
}

// FSUsage of a file system images or containers lie on.
type FSUsage struct {
	Mountpoint string
	Used       int64 // bytes
	Inodes     int64 // used; 0: not known
	Written    bool  // by containers: what they write lies there, images need not
}
