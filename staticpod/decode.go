package staticpod

import (
	"crypto/sha256"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// manifest is a file that was understood.
type manifest struct {
	pod      *v1.Pod
	warnings []string
	sum      [sha256.Size]byte // of what the file says; comments and layout do not count
}

// Decode reads one manifest of a static pod, YAML or JSON, and sets what an API server would set. Warnings
// are things that are accepted, but likely not what was meant: unknown fields, keys that stand
// twice, a second document.
//
// The error of a manifest that is refused is a [Problems] with all that is wrong. Its texts quote at most a
// few characters of the manifest. The pod is the caller's own. Decode keeps no state and may be called
// from several goroutines.
func Decode(b []byte) (pod *v1.Pod, warnings []string, err error) {
	m, err := read(b)
	return m.pod, m.warnings, err
}

func read(b []byte) (manifest, error) {
	content, warnings, err := contentOf(b)
	if err != nil {
		return manifest{warnings: warnings}, err
	}
	object, err := podObject(content)
	if err != nil {
		return manifest{warnings: warnings}, err
	}
	return readObject(object, warnings)
}

// contentOf is what the text of a manifest says, as JSON values.
func contentOf(b []byte) (content any, warnings []string, err error) {
	doc, warnings, err := document(b)
	if err != nil {
		return nil, warnings, err
	}
	if err := json.Unmarshal(doc, &content); err != nil {
		return nil, warnings, whole("is not JSON: %v", err)
	}
	return content, warnings, nil
}

// readObject reads the fields of one pod.
func readObject(object map[string]any, warnings []string) (manifest, error) {
	delete(object, "status") // the agent's to say
	r := &report{warnings: warnings}
	s := shape{report: r, fields: map[reflect.Type]map[string]reflect.Type{}}
	s.check(reflect.TypeFor[v1.Pod](), object, nil)
	if err := r.err(); err != nil {
		return manifest{warnings: r.warnings}, err
	}
	doc, err := json.Marshal(object)
	if err != nil {
		return manifest{warnings: r.warnings}, whole("is not JSON: %v", err)
	}
	pod := new(v1.Pod)
	if err := json.Unmarshal(doc, pod); err != nil {
		return manifest{warnings: r.warnings}, whole("cannot be read as a Pod: %v", err)
	}
	forgetServer(pod, r)
	setDefaults(pod)
	validate(pod, r)
	if err := r.err(); err != nil {
		return manifest{warnings: r.warnings}, err
	}
	return manifest{pod: pod, warnings: r.warnings, sum: sha256.Sum256(doc)}, nil
}

// podObject is the content as the fields of a Pod; anything else is refused by its kind.
func podObject(content any) (map[string]any, error) {
	object, ok := content.(map[string]any)
	if !ok {
		return nil, whole("holds %s, not an object; a static pod begins with apiVersion: v1 and kind: Pod", shown(content))
	}
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	switch {
	case kind == "":
		return nil, whole("has no kind; a static pod begins with apiVersion: v1 and kind: Pod")
	case kind != "Pod":
		return nil, whole("is of kind %s; only a Pod can come from a file%s", strings.Trim(quote(kind), `"`), instead(kind))
	case version == "":
		return nil, whole("has no apiVersion; write apiVersion: v1")
	case version != "v1":
		return nil, whole("has apiVersion %s; a Pod is apiVersion: v1", quote(version))
	}
	return object, nil
}

// instead is what someone who wrote that kind may want to do.
func instead(kind string) string {
	switch kind {
	case "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job", "CronJob", "PodTemplate":
		return ", so make one of its pod template"
	case "List", "PodList":
		return ", so put each pod into a file of its own"
	}
	return ""
}

// forgetServer drops what an API server noted about an object it never saw.
func forgetServer(pod *v1.Pod, r *report) {
	if pod.DeletionTimestamp != nil {
		r.warn(atMetadata.Child("deletionTimestamp"), "is ignored; a pod from a file ends when the file goes")
	}
	m := &pod.ObjectMeta
	m.ResourceVersion, m.Generation, m.ManagedFields = "", 0, nil
	m.SelfLink = "" //nolint:staticcheck // old exports still have it
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
}
