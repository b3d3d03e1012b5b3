package volume

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// projected joins several sources in one directory; of two files with the same path the later one counts.
func (m *Manager) projected(to payload, r request) error {
	source := r.volume.Projected
	var errs []error
	for i, s := range source.Sources {
		errs = append(errs, m.project(to, r, i, s, source.DefaultMode))
	}
	return errors.Join(errs...)
}

func (m *Manager) project(to payload, r request, i int, s v1.VolumeProjection, mode *int32) error {
	switch {
	case s.DownwardAPI != nil:
		return m.pick(to, r.pod, s.DownwardAPI.Items, mode)
	case s.ConfigMap != nil:
		return r.pickKeys(to, need{kind: kindConfigMap, name: s.ConfigMap.Name}, selection{s.ConfigMap.Items, mode, s.ConfigMap.Optional})
	case s.Secret != nil:
		return r.pickKeys(to, need{kind: kindSecret, name: s.Secret.Name}, selection{s.Secret.Items, mode, s.Secret.Optional})
	case s.ServiceAccountToken != nil:
		return r.pickToken(to, s.ServiceAccountToken, mode)
	case s.ClusterTrustBundle != nil:
		return r.pickBundle(to, s.ClusterTrustBundle, mode)
	case s.PodCertificate != nil:
		return r.pickCertificate(to, s.PodCertificate, i, mode)
	}
	return fmt.Errorf("this agent cannot project a source of kind %s", strings.Join(set(s), ", "))
}

// pickToken adds the file of a token.
func (r request) pickToken(to payload, s *v1.ServiceAccountTokenProjection, mode *int32) error {
	token, err := r.answer(tokenNeed(s))
	if err != nil {
		return err
	}
	text, _ := token.(string)
	return to.add(s.Path, r.secretFile(text, mode))
}

// commonUser is whom all containers of a pod run as, nil if that is not one, or not said.
func commonUser(pod *v1.Pod) (common *int64) {
	for _, c := range podspec.Containers(pod) {
		var user *int64
		if pod.Spec.SecurityContext != nil {
			user = pod.Spec.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			user = c.SecurityContext.RunAsUser
		}
		if user == nil || common != nil && *common != *user {
			return nil
		}
		common = user
	}
	return common
}
