package invariant

import (
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
)

// ranked: the victims are the first in the order of all owned pods, found here by
// comparing pod by pod, criterion by criterion.
func (w *watcher) ranked(spec replicas.Spec, owned []*corev1.Pod, scale replicas.Scale) {
	if len(scale.Delete) == 0 {
		return
	}
	order := slices.Clone(owned)
	ranks := colocated(spec, owned)
	slices.SortFunc(order, func(a, b *corev1.Pod) int {
		for _, criterion := range criteria(spec.Now, ranks) {
			if x, y := criterion(a), criterion(b); x != y {
				return map[bool]int{true: -1, false: 1}[x < y]
			}
		}
		return map[bool]int{true: -1, false: 1}[a.UID < b.UID]
	})
	for i, v := range scale.Delete {
		if v.Object.UID != order[i].UID {
			w.fail("%s deletes %s, but %s goes first", spec.Owner.GetName(), v.Object.Name, order[i].Name)
		}
	}
}

// criteria are what a pod is compared by, the smaller first to go.
func criteria(now time.Time, ranks map[string]int) []func(*corev1.Pod) float64 {
	return []func(*corev1.Pod) float64{
		func(p *corev1.Pod) float64 { return number(p.Spec.NodeName != "") },
		func(p *corev1.Pod) float64 {
			return map[corev1.PodPhase]float64{corev1.PodUnknown: 1, corev1.PodRunning: 2}[p.Status.Phase]
		},
		func(p *corev1.Pod) float64 { return number(isReady(p)) },
		func(p *corev1.Pod) float64 {
			cost, _ := strconv.Atoi(p.Annotations[corev1.PodDeletionCost])
			return float64(cost)
		},
		func(p *corev1.Pod) float64 { return -float64(ranks[p.Spec.NodeName]) },
		func(p *corev1.Pod) float64 {
			if since := readySince(p); since != nil {
				return bucket(now.Sub(*since))
			}
			return 0
		},
		func(p *corev1.Pod) float64 {
			restarts := int32(0)
			for _, c := range p.Status.ContainerStatuses {
				restarts = max(restarts, c.RestartCount)
			}
			return -float64(restarts)
		},
		func(p *corev1.Pod) float64 { return bucket(now.Sub(p.CreationTimestamp.Time)) },
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// bucket is the age on a logarithmic scale.
func bucket(age time.Duration) float64 {
	if age <= 0 {
		return -1
	}
	return math.Floor(math.Log2(float64(age)))
}

// colocated counts the active pods of each node, where siblings are known.
func colocated(spec replicas.Spec, owned []*corev1.Pod) map[string]int {
	ranks := map[string]int{}
	if spec.Related == nil {
		return ranks
	}
	seen := map[types.UID]bool{}
	for _, p := range slices.Concat(owned, spec.Related) {
		if !seen[p.UID] && isActive(p) {
			ranks[p.Spec.NodeName]++
		}
		seen[p.UID] = true
	}
	return ranks
}
