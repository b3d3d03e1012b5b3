package podruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/renameio/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Users are the IDs of this machine that pods with user namespaces of their own are given, a range each. The zero value is
// all IDs but the first and the last 65536, by 65536.
type Users struct {
	First, Count uint32 // both multiples of Each; Count 0: all from First on that a kernel maps
	Each         uint32 // of one pod, a multiple of 65536; 0: 65536
}

const idUnit = 1 << 16

// check fills in what is not said and refuses what would let a pod be somebody else on this machine.
func (u Users) check() (Users, error) {
	if u.Each == 0 {
		u.Each = idUnit
	}
	if u.First == 0 {
		u.First = u.Each
	}
	if u.Count == 0 {
		u.Count = uint32((1<<32 - uint64(u.First)) / uint64(u.Each) * uint64(u.Each))
	}
	if u.Count > 0 && uint64(u.First)+uint64(u.Count) == 1<<32 { // no kernel maps a range with the very last ID
		u.Count -= min(u.Count, u.Each)
	}
	switch {
	case u.Each%idUnit != 0:
		return u, fmt.Errorf("podruntime: Users.Each is %d, which is no multiple of %d", u.Each, idUnit)
	case u.First%u.Each != 0 || u.Count%u.Each != 0:
		return u, fmt.Errorf("podruntime: Users are %d IDs from %d on; both must be multiples of %d, those of one pod", u.Count, u.First, u.Each)
	case u.Count == 0:
		return u, fmt.Errorf("podruntime: Users from %d on are no %d IDs before %d, which belongs to nobody", u.First, u.Each, uint32(1<<32-1))
	case uint64(u.First)+uint64(u.Count) > 1<<32:
		return u, fmt.Errorf("podruntime: Users are %d IDs from %d on; the last there is is %d", u.Count, u.First, uint32(1<<32-1))
	}
	return u, nil
}

// ranges knows which range is whose. It stands in a file of each pod's directory, under the kubelet's name and in its
// format, so that it outlives the agent.
type ranges struct {
	Users

	mu   sync.Mutex // guards what follows
	read bool       // what the files say is in of and foreign
	of   map[types.UID]uint32
	next uint32 // number of the range that is tried first: those given back are used again as late as can be

	foreign map[types.UID][]ids // of pods whose files are not as they are made here
}

const usersFile = "userns"

// mapping is the format of the file.
type mapping struct {
	UIDs []ids `json:"uidMappings"`
	GIDs []ids `json:"gidMappings"`
}

type ids struct {
	Host      uint32 `json:"hostId"`
	Container uint32 `json:"containerId"`
	Length    uint32 `json:"length"`
}

func ownUsers(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// users are the IDs of a pod, none when it shares those of the machine.
func (r *Runtime) users(ctx context.Context, pod *v1.Pod, handler string) ([]runtime.IDMapping, error) {
	if !ownUsers(pod) {
		return nil, nil
	}
	h, err := r.handler(ctx, handler)
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for user namespaces: %w", err)
	}
	if !h.UserNamespaces {
		who := "runtime"
		if handler != "" {
			who = fmt.Sprintf("RuntimeClass handler %q", handler)
		}
		return nil, fmt.Errorf("can't set `spec.hostUsers: false`, %s does not support user namespaces", who)
	}
	first, err := r.ranges.get(r.files, pod.UID)
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	return []runtime.IDMapping{{Host: first, Length: r.ranges.Each}}, nil
}

// handler is what the engine can do with a handler; one it does not tell of can do nothing.
func (r *Runtime) handler(ctx context.Context, name string) (runtime.Handler, error) {
	info, err := r.cfg.Engine.Info(ctx)
	if err != nil {
		return runtime.Handler{}, err
	}
	i := slices.IndexFunc(info.Handlers, func(h runtime.Handler) bool { return h.Name == name })
	if i < 0 {
		return runtime.Handler{}, nil
	}
	return info.Handlers[i], nil
}

// get is the first ID of a pod's range: the one it has, else a free one.
func (g *ranges) get(files layout, uid types.UID) (uint32, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.load(files); err != nil {
		return 0, err
	}
	if first, ok := g.of[uid]; ok {
		return first, nil
	}
	if files.root != "" { // no other range for a pod whose own cannot be told
		if _, err := g.readFile(files, uid); !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	first, ok := g.free()
	if !ok {
		return 0, fmt.Errorf("could not find an empty slot to allocate a user namespace: all %d ranges are taken", g.Count/g.Each)
	}
	if files.root != "" {
		id := []ids{{Host: first, Length: g.Each}}
		data, _ := json.Marshal(mapping{id, id}) // numbers: cannot fail
		dir := files.podDir(uid)
		if err := renameio.WriteFile(filepath.Join(dir, usersFile), data, 0o600, renameio.WithTempDir(dir)); err != nil {
			return 0, fmt.Errorf("keep the range of the pod: %w", err)
		}
	}
	g.of[uid] = first
	g.next = (first-g.First)/g.Each + 1
	return first, nil
}

func (g *ranges) free() (first uint32, ok bool) {
	taken := make(map[uint32]bool, len(g.of))
	for _, f := range g.of {
		taken[f] = true
	}
	slots := g.Count / g.Each
	for i := range slots {
		first := g.First + uint32((uint64(g.next)+uint64(i))%uint64(slots))*g.Each
		if !taken[first] && !g.strange(first) {
			return first, true
		}
	}
	return 0, false
}

// strange says that a range has IDs of a pod that was given them under other settings.
func (g *ranges) strange(first uint32) bool {
	for _, all := range g.foreign {
		for _, i := range all {
			if uint64(i.Host) < uint64(first)+uint64(g.Each) && uint64(first) < uint64(i.Host)+uint64(i.Length) {
				return true
			}
		}
	}
	return false
}

// load reads what other agents gave before this one, once. A file that cannot be used keeps its pod from being started, and
// no other.
func (g *ranges) load(files layout) error {
	if g.read {
		return nil
	}
	g.of, g.foreign = map[types.UID]uint32{}, map[types.UID][]ids{}
	if files.root != "" {
		entries, err := os.ReadDir(files.podDir(""))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("see which ranges are taken: %w", err)
		}
		for _, e := range entries {
			uid := types.UID(e.Name())
			m, err := g.readFile(files, uid)
			switch all := slices.Concat(m.UIDs, m.GIDs); {
			case err == nil:
				g.of[uid] = all[0].Host
			case len(all) > 0:
				g.foreign[uid] = all
			}
		}
	}
	g.read = true
	return nil
}

// readFile is what a file tells of: one range, unless there is an error. What was made under other settings is kept out of the
// way of new ranges as long as its pod lives, but is not used again.
func (g *ranges) readFile(files layout, uid types.UID) (m mapping, err error) {
	path := filepath.Join(files.podDir(uid), usersFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s is damaged: %w; remove the pod, or the file once nothing of the pod runs", path, err)
	}
	whole := len(m.UIDs) == 1 && len(m.GIDs) == 1 && m.UIDs[0] == m.GIDs[0] && m.UIDs[0].Container == 0
	if id := m.UIDs; !whole || id[0].Length != g.Each || id[0].Host%g.Each != 0 || id[0].Host < g.First || id[0].Host-g.First >= g.Count {
		return m, fmt.Errorf("%s has no range that pods are given here (%d IDs each from %d on); remove the pod, or the file once nothing of the pod runs", path, g.Each, g.First)
	}
	return m, nil
}

// release gives the range of a pod back of which nothing runs.
func (g *ranges) release(files layout, uid types.UID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if files.root != "" {
		if err := os.Remove(filepath.Join(files.podDir(uid), usersFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("give back the IDs of the pod: %w", err)
		}
	}
	delete(g.of, uid)
	delete(g.foreign, uid)
	return nil
}
