package syncloop

import "k8s.io/apimachinery/pkg/types"

// Busy is closed when the step has ended in which a pod is now, after which the loop looks at what came of it. nil: it is in
// none. pleg.Config.Busy is meant.
func (r *Roster) Busy(uid types.UID) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.pods[uid]; w != nil && w.stepping {
		return w.stepped
	}
	return nil
}
