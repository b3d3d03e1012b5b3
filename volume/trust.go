package volume

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Bundles are the ClusterTrustBundles of a cluster (KEP-3257), all of them. What is returned is shared and never changed.
// Config.Objects follows kind "ClusterTrustBundle" for them, without a name.
type Bundles interface {
	Bundles(ctx context.Context) ([]*certv1.ClusterTrustBundle, error)
}

// bundleNeed is the need of a source: one bundle by its name, or those of a signer that have the labels.
func bundleNeed(s *v1.ClusterTrustBundleProjection) need {
	n := need{kind: kindBundle}
	if s.Name != nil {
		n.name = *s.Name
		return n
	}
	if s.SignerName != nil {
		n.signer = *s.SignerName
	}
	n.labels = "!" // without a selector no bundle is meant
	if s.LabelSelector != nil {
		n.labels = metav1.FormatLabelSelector(s.LabelSelector)
		if len(s.LabelSelector.MatchLabels)+len(s.LabelSelector.MatchExpressions) == 0 {
			n.labels = ""
		}
	}
	return n
}

// anchors looks for the certificates that a need means.
func (m *Manager) anchors(ctx context.Context, n need) (string, error) {
	all, err := m.cfg.Bundles.Bundles(ctx)
	if err != nil {
		return "", fmt.Errorf("look up %v: %w", n, err)
	}
	chosen, err := choose(all, n)
	if err != nil {
		return "", err
	}
	if len(chosen) == 0 {
		return "", fmt.Errorf("%v %w", n, runtime.ErrNotFound)
	}
	return join(chosen)
}

// choose are the bundles that a need means.
func choose(all []*certv1.ClusterTrustBundle, n need) (chosen []*certv1.ClusterTrustBundle, err error) {
	selector := labels.Nothing()
	if n.name == "" && n.labels != "!" {
		if selector, err = labels.Parse(n.labels); err != nil {
			return nil, fmt.Errorf("labels of %v: %w", n, err)
		}
	}
	for _, b := range all {
		if n.name != "" && b.Name == n.name || n.name == "" && b.Spec.SignerName == n.signer && selector.Matches(labels.Set(b.Labels)) {
			chosen = append(chosen, b)
		}
	}
	return chosen, nil
}

// join has each certificate of the bundles once, without whatever else stands there. Nobody may rely on their order, so it
// follows their content.
func join(bundles []*certv1.ClusterTrustBundle) (string, error) {
	var ders [][]byte
	for _, b := range bundles {
		for rest := []byte(b.Spec.TrustBundle); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if block.Type == "CERTIFICATE" {
				ders = append(ders, block.Bytes)
			}
		}
	}
	slices.SortFunc(ders, bytes.Compare)
	var text bytes.Buffer
	for _, der := range slices.CompactFunc(ders, bytes.Equal) {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// pickBundle adds the file of trust anchors. One that is optional and not there is empty.
func (r request) pickBundle(to payload, s *v1.ClusterTrustBundleProjection, mode *int32) error {
	text, err := r.answer(bundleNeed(s))
	if err != nil && (s.Optional == nil || !*s.Optional || !errors.Is(err, runtime.ErrNotFound)) {
		return err
	}
	pem, _ := text.(string)
	return to.add(s.Path, r.secretFile(pem, mode))
}

// secretFile is a file that only the user can read that all containers run as, if there is one, and the group that owns the
// volume.
func (r request) secretFile(text string, mode *int32) file {
	f := file{data: []byte(text), mode: modeOf(mode), owner: commonUser(r.pod)}
	if f.owner != nil || fsGroup(r.pod) != nil {
		f.mode = 0o600 // its group is let in when the volume is given to it
	}
	return f
}

// spread is up to that much.
func spread(most float64) float64 { return most * rand.Float64() } //nolint:gosec // spreads load, guards nothing
