package podcases

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// Recorder keeps the requests by which sandboxes and containers are made. The zero value is ready; all methods are safe
// for concurrent use.
type Recorder struct {
	mu         sync.Mutex // guards what follows
	sandboxes  []*cri.RunPodSandboxRequest
	containers []*cri.CreateContainerRequest
	names      map[string]string // of containers, by ID
	pods       map[string]string // namespaces and names of pods, by ID of sandbox and container
	updates    []update
	stops      []Stop
	made       []made
	moment     int
}

// made is one request that a sandbox or container be made.
type made struct {
	pod    string // namespace and name
	what   string
	moment int
}

// Stop is a request to stop a container.
type Stop struct {
	Container   string
	Timeout     int64 // seconds
	Begun, Done int   // moments: what has a lower one was before; Done is zero until it has been answered

	id string
}

// update is one request for other sizes.
type update struct {
	of      string // ID of a sandbox or container
	message proto.Message
}

// Intercept is for grpc.UnaryInterceptor.
func (r *Recorder) Intercept(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	stop := r.stopping(q)
	a, err := next(ctx, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	if stop >= 0 {
		r.moment++
		r.stops[stop].Done = r.moment
	}
	switch q := q.(type) {
	case *cri.RunPodSandboxRequest:
		r.sandboxes = append(r.sandboxes, proto.CloneOf(q))
		r.note(q.GetConfig(), "sandbox")
		if err == nil {
			r.learn(a.(*cri.RunPodSandboxResponse).GetPodSandboxId(), "", q.GetConfig())
		}
	case *cri.CreateContainerRequest:
		r.containers = append(r.containers, proto.CloneOf(q))
		r.note(q.GetSandboxConfig(), "container "+q.GetConfig().GetMetadata().GetName())
		if err == nil {
			r.learn(a.(*cri.CreateContainerResponse).GetContainerId(), q.GetConfig().GetMetadata().GetName(), q.GetSandboxConfig())
		}
	case *cri.UpdateContainerResourcesRequest:
		r.updates = append(r.updates, update{q.GetContainerId(), proto.CloneOf(q)})
	case *cri.UpdatePodSandboxResourcesRequest:
		r.updates = append(r.updates, update{q.GetPodSandboxId(), proto.CloneOf(q)})
	}
	return a, err
}

// stopping is the place of a request to stop a container; negative: it is another one.
func (r *Recorder) stopping(q any) int {
	s, ok := q.(*cri.StopContainerRequest)
	if !ok {
		return -1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.stops = append(r.stops, Stop{Container: r.names[s.GetContainerId()], Timeout: s.GetTimeout(), Begun: r.moment, id: s.GetContainerId()})
	return len(r.stops) - 1
}

// Moment is now: what is requested later has a higher one.
func (r *Recorder) Moment() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	return r.moment
}

// Stops are the requests to stop containers of a pod that came after a moment, in order, of each instance the first.
func (r *Recorder) Stops(namespace, pod string, after int) (all []Stop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.stops {
		first := !slices.ContainsFunc(all, func(t Stop) bool { return t.id == s.id })
		if r.pods[s.id] == namespace+"/"+pod && s.Begun > after && first {
			all = append(all, s)
		}
	}
	return all
}

// Made is what was asked to be made for a pod after a moment, in order: "sandbox", or "container" and its name.
func (r *Recorder) Made(namespace, pod string, after int) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.made {
		if m.pod == namespace+"/"+pod && m.moment > after {
			all = append(all, m.what)
		}
	}
	return all
}

func (r *Recorder) note(pod *cri.PodSandboxConfig, what string) {
	r.moment++
	r.made = append(r.made, made{podKey(pod), what, r.moment})
}

func podKey(c *cri.PodSandboxConfig) string {
	return c.GetMetadata().GetNamespace() + "/" + c.GetMetadata().GetName()
}

// learn remembers what an ID is of.
func (r *Recorder) learn(id, container string, pod *cri.PodSandboxConfig) {
	if r.names == nil {
		r.names, r.pods = map[string]string{}, map[string]string{}
	}
	r.names[id] = container
	r.pods[id] = podKey(pod)
}

// Updates is what the runtime was told of new sizes of a pod, in order.
func (r *Recorder) Updates(namespace, pod string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	for _, u := range r.updates {
		if r.pods[u.of] != namespace+"/"+pod {
			continue
		}
		title, message := "sizes of the sandbox", proto.Clone(u.message)
		switch q := message.(type) {
		case *cri.UpdateContainerResourcesRequest:
			title, q.ContainerId = "sizes of "+r.names[u.of], ""
			normalResources(q.GetLinux())
		case *cri.UpdatePodSandboxResourcesRequest:
			q.PodSandboxId = ""
		}
		if err := write(&out, title, message); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

// Containers are the names of those created for a pod, in order, each once.
func (r *Recorder) Containers(namespace, pod string) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.containers {
		if of(q.GetSandboxConfig(), namespace, pod) && !slices.Contains(names, q.GetConfig().GetMetadata().GetName()) {
			names = append(names, q.GetConfig().GetMetadata().GetName())
		}
	}
	return names
}

// NoUID is the UID of a pod for which no sandbox was made: something no text has in it.
const NoUID types.UID = "\x00"

// UID is that of a pod a sandbox was made for, else NoUID.
func (r *Recorder) UID(namespace, pod string) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.sandboxes {
		if of(q.GetConfig(), namespace, pod) {
			return types.UID(q.GetConfig().GetMetadata().GetUid())
		}
	}
	return NoUID
}

func of(c *cri.PodSandboxConfig, namespace, pod string) bool {
	return c.GetMetadata().GetNamespace() == namespace && c.GetMetadata().GetName() == pod
}

// Text is what the runtime was told of a pod: its first sandbox, and each container as it was first created. Paths are
// replaced, old and new in turn; IDs of containers and names of files made at random have fixed ones. Lists whose
// order says nothing are sorted. A container whose sandbox is told to be another one than was made has that one too.
func (r *Recorder) Text(namespace, pod string, paths ...string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	var sandbox *cri.RunPodSandboxRequest
	for _, q := range r.sandboxes {
		if of(q.GetConfig(), namespace, pod) {
			sandbox = normalSandbox(q)
			break
		}
	}
	if err := write(&out, "sandbox", sandbox); err != nil {
		return "", err
	}
	seen := map[string]bool{}
	for _, q := range r.containers {
		name := q.GetConfig().GetMetadata().GetName()
		if !of(q.GetSandboxConfig(), namespace, pod) || seen[name] {
			continue
		}
		seen[name] = true
		q = r.normalContainer(q)
		if normal := normalSandbox(&cri.RunPodSandboxRequest{Config: q.SandboxConfig}); proto.Equal(normal.Config, sandbox.GetConfig()) {
			q.SandboxConfig = nil
		}
		q.PodSandboxId = ""
		if err := write(&out, "container "+name, q); err != nil {
			return "", err
		}
	}
	text := strings.NewReplacer(paths...).Replace(out.String())
	return lastWords.ReplaceAllString(text, "$1/LASTWORDS"), nil
}

var lastWords = regexp.MustCompile(`(/containers/[^/\n]+)/[0-9a-f]{8}\b`)

func write(out *strings.Builder, title string, m proto.Message) error {
	data, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	readableEnv(v)
	joinPaths(v)
	text, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "--- # %s\n%s", title, text)
	return err
}

// readableEnv writes variables as NAME=value: their values are bytes in CRI.
func readableEnv(v any) {
	message, _ := v.(map[string]any)
	config, _ := message["config"].(map[string]any)
	envs, _ := config["envs"].([]any)
	for i, e := range envs {
		e, _ := e.(map[string]any)
		name, _ := e["key"].(string)
		value, _ := e["value"].(string)
		raw, _ := base64.StdEncoding.DecodeString(value) // protojson wrote it
		envs[i] = name + "=" + string(raw)
	}
}

// joinPaths writes the long lists that nearly all containers have on one line each.
func joinPaths(v any) {
	message, _ := v.(map[string]any)
	config, _ := message["config"].(map[string]any)
	linux, _ := config["linux"].(map[string]any)
	security, _ := linux["securityContext"].(map[string]any)
	for _, name := range []string{"maskedPaths", "readonlyPaths"} {
		if list, ok := security[name].([]any); ok {
			security[name] = strings.Trim(fmt.Sprint(list), "[]")
		}
	}
}

func normalSandbox(q *cri.RunPodSandboxRequest) *cri.RunPodSandboxRequest {
	q = proto.CloneOf(q)
	c := q.GetConfig()
	slices.Sort(c.GetDnsConfig().GetOptions())
	normalResources(c.GetLinux().GetResources())
	normalResources(c.GetLinux().GetOverhead())
	normalUsers(c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions())
	return q
}

func (r *Recorder) normalContainer(q *cri.CreateContainerRequest) *cri.CreateContainerRequest {
	q = proto.CloneOf(q)
	c := q.GetConfig()
	slices.SortStableFunc(c.GetEnvs(), func(a, b *cri.KeyValue) int { return cmp.Compare(a.GetKey(), b.GetKey()) })
	for _, m := range c.GetMounts() {
		normalMappings(m.GetUidMappings())
		normalMappings(m.GetGidMappings())
	}
	normalResources(c.GetLinux().GetResources())
	n := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	normalUsers(n.GetUsernsOptions())
	if n.GetTargetId() != "" {
		n.TargetId = "id of " + r.names[n.GetTargetId()]
	}
	if s := c.GetLinux().GetSecurityContext(); s != nil {
		// one for each CPU of this machine, where it has the file
		s.MaskedPaths = slices.DeleteFunc(s.MaskedPaths, func(p string) bool { return strings.HasSuffix(p, "/thermal_throttle") })
		slices.Sort(s.MaskedPaths)
		slices.Sort(s.ReadonlyPaths)
	}
	return q
}

func normalResources(r *cri.LinuxContainerResources) {
	slices.SortFunc(r.GetHugepageLimits(), func(a, b *cri.HugepageLimit) int { return cmp.Compare(a.GetPageSize(), b.GetPageSize()) })
}

// normalUsers gives all pods the same range of the host, the first that they are allowed.
func normalUsers(u *cri.UserNamespace) {
	normalMappings(u.GetUids())
	normalMappings(u.GetGids())
}

func normalMappings(list []*cri.IDMapping) {
	for _, m := range list {
		if m.GetHostId() >= 65536 && m.GetHostId()%65536 == 0 {
			m.HostId = 65536
		}
	}
}
