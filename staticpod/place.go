package staticpod

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// What the annotation kubernetes.io/config.source says of pods from here.
const (
	sourceFile = "file"
	sourceHTTP = "http"
)

// seenFormat is RFC 3339 with all nine digits of the second.
const seenFormat = "2006-01-02T15:04:05.000000000Z07:00"

// origin is where a manifest was found. It becomes part of the UID.
type origin struct {
	source string // as the annotation says it: file or http
	node   string
	at     string // path or address
}

// place makes the pod of a manifest the pod of this node and this place.
func (o origin) place(m manifest, now time.Time) (*v1.Pod, error) {
	pod := m.pod
	pod.Name += "-" + strings.ToLower(o.node)
	if len(pod.Name) > validation.DNS1123SubdomainMaxLength {
		return nil, Problems{{Field: "metadata.name", Text: fmt.Sprintf("is too long: with the name of the node, %s, it has %d characters of at most %d",
			o.node, len(pod.Name), validation.DNS1123SubdomainMaxLength)}}
	}
	setZero(&pod.Namespace, metav1.NamespaceDefault)
	setZero(&pod.UID, o.uid(m))
	pod.Spec.NodeName = o.node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[podspec.SourceAnnotation] = o.source
	pod.Annotations[podspec.HashAnnotation] = string(pod.UID)
	pod.Annotations[podspec.SeenAnnotation] = now.Format(seenFormat)
	if o.source == sourceFile { // as the kubelet has it
		tolerate(pod)
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	return pod, nil
}

// uid names what the manifest says, the node and the place: the same for the same, over all restarts. It is taken
// from the content as written, so that other defaults in a later release change no UID.
func (o origin) uid(m manifest) types.UID {
	h := sha256.New()
	h.Write(m.sum[:])
	kind := "file"
	if o.source == sourceHTTP {
		kind = "url"
	}
	fmt.Fprintf(h, "host:%s\n%s:%s", o.node, kind, o.at)
	return types.UID(hex.EncodeToString(h.Sum(nil)[:16]))
}

// tolerate keeps taints from evicting what a node runs on its own account.
func tolerate(pod *v1.Pod) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for i := range pod.Spec.Tolerations {
		if t := &pod.Spec.Tolerations[i]; t.MatchToleration(&all) {
			*t = all
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, all)
}
