package invariant

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/slowrank"
	"github.com/replicakit/replicakit/replicas"
)

// ranked: the victims are the first in the order of all owned pods, found here by
// comparing pod by pod, criterion by criterion.
func (w *watcher) ranked(spec replicas.Spec, owned []*corev1.Pod, scale replicas.Scale) {
	if len(scale.Delete) == 0 {
		return
	}
	order := slowrank.Sort(slowrank.Ranked(owned, siblings(spec, owned)), spec.Now)
	for i, v := range scale.Delete {
		if v.Object.UID != order[i].UID {
			w.fail("%s deletes %s, but %s goes first", spec.Owner.GetName(), v.Object.Name, order[i].Name)
		}
	}
}

// siblings are the pods that count for co-location, each once.
func siblings(spec replicas.Spec, owned []*corev1.Pod) []*corev1.Pod {
	if len(spec.Related) == 0 {
		return nil
	}
	seen := map[types.UID]bool{}
	return slices.DeleteFunc(slices.Concat(owned, spec.Related), func(p *corev1.Pod) bool {
		twice := seen[p.UID]
		seen[p.UID] = true
		return twice
	})
}
