// Package podsizes remembers sizes of pods: what their containers ask for and are limited to, beside what a spec says that
// may have been changed since. One store holds what was promised to pods, another what was applied to them.
package podsizes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/checkpoint"
)

// Pod is the sizes of one pod, as the kubelet's checkpoints have them. Values are shared and read-only.
type Pod struct {
	Containers map[string]v1.ResourceRequirements `json:"ContainerResources"` // init containers too
	Level      *v1.ResourceRequirements           `json:"PodLevelResources"`  // of the pod as a whole
}

// Of are the sizes in a pod's spec.
func Of(pod *v1.Pod) Pod {
	p := Pod{Containers: map[string]v1.ResourceRequirements{}, Level: pod.Spec.Resources}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			p.Containers[list[i].Name] = list[i].Resources
		}
	}
	return p
}

// Equal says that nothing differs.
func (p Pod) Equal(other Pod) bool { return equality.Semantic.DeepEqual(p, other) }

// Over is the pod with these sizes instead of those in its spec: the same object when nothing differs, and otherwise a
// copy that shares all but the containers with it.
func (p Pod) Over(pod *v1.Pod) *v1.Pod {
	out := *pod
	changed := !equality.Semantic.DeepEqual(p.Level, pod.Spec.Resources)
	out.Spec.Resources = p.Level
	over := func(list []v1.Container) []v1.Container {
		var copied []v1.Container
		for i := range list {
			was, known := p.Containers[list[i].Name]
			if !known || equality.Semantic.DeepEqual(was, list[i].Resources) {
				continue
			}
			if copied == nil {
				copied = append(copied, list...)
			}
			copied[i].Resources, changed = was, true
		}
		if copied == nil {
			return list
		}
		return copied
	}
	out.Spec.InitContainers, out.Spec.Containers = over(pod.Spec.InitContainers), over(pod.Spec.Containers)
	if !changed {
		return pod
	}
	return &out
}

// Store remembers sizes by pod. It is safe for concurrent use.
type Store struct {
	path   string
	write  func(path string, data []byte) error
	report func(error)
	load   sync.Once

	mu      sync.Mutex // guards the next two
	pods    map[types.UID]entry
	version uint64 // counts changes that must not be lost

	writing sync.Mutex // held while the file is written; guards written
	written uint64     // the version that is on the disk
}

// NewStore makes a store that outlives the process in a file that write, of package checkpoint, writes, or with an empty path
// does not. The file is read when the store is first asked for something; report is told when it cannot be: then nothing is
// remembered.
func NewStore(path string, write func(path string, data []byte) error, report func(error)) *Store {
	return &Store{path: path, write: write, report: report, pods: map[types.UID]entry{}}
}

// entry is a pod, and itself as an object in JSON, made when it is first written.
type entry struct {
	Pod

	text []byte
}

// content is what the file has.
type content struct {
	Entries map[types.UID]Pod `json:"entries,omitempty"`
}

func (s *Store) open() {
	s.load.Do(func() {
		if s.path == "" {
			return
		}
		var c content
		switch err := checkpoint.Read(s.path, &c); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			s.report(fmt.Errorf("sizes of pods are not known: %w", err))
		default:
			s.mu.Lock()
			defer s.mu.Unlock()
			for uid, p := range c.Entries {
				s.pods[uid] = entry{Pod: p}
			}
		}
	})
}

// Get is what is remembered of a pod.
func (s *Store) Get(uid types.UID) (p Pod, ok bool) {
	s.open()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pods[uid]
	return e.Pod, ok
}

// Set remembers the sizes of a pod. Save makes it last.
func (s *Store) Set(uid types.UID, p Pod) {
	s.open()
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.pods[uid]; ok && old.Equal(p) {
		return
	}
	s.pods[uid] = entry{Pod: p}
	s.version++
}

// Forget forgets a pod. Nothing is written for that: what is no more does no harm.
func (s *Store) Forget(uid types.UID) {
	s.open()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// Keep forgets all pods but those.
func (s *Store) Keep(keep func(types.UID) bool) {
	s.open()
	s.mu.Lock()
	known := maps.Clone(s.pods)
	s.mu.Unlock()
	for uid := range known {
		if !keep(uid) {
			s.Forget(uid)
		}
	}
}

// Save returns when all that was set before is on the disk. Many calls at once share one write.
func (s *Store) Save() error {
	s.open()
	s.mu.Lock()
	wanted := s.version
	s.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.path == "" || s.written >= wanted {
		return nil
	}
	version, text, err := s.text()
	if err != nil {
		return err
	}
	if err := s.write(s.path, text); err != nil {
		return err
	}
	s.written = version
	return nil
}

// text is content as JSON. Only pods that have changed are put into words: with hundreds of them on the node the rest costs
// next to nothing.
func (s *Store) text() (version uint64, text []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text = append(text, `{"entries":{`...)
	for i, uid := range slices.Sorted(maps.Keys(s.pods)) {
		e := s.pods[uid]
		if e.text == nil {
			if e.text, err = json.Marshal(map[types.UID]Pod{uid: e.Pod}); err != nil {
				return 0, nil, fmt.Errorf("sizes of pod %s: %w", uid, err)
			}
			s.pods[uid] = e
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, e.text[1:len(e.text)-1]...) // without its braces
	}
	return s.version, append(text, "}}"...), nil
}
