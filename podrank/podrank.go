// Package podrank decides which pods go first when a set has too many: the
// ranking that Kubernetes' ReplicaSet controller deletes by, and the choice of
// the first n of it with the reason for each.
//
// Which pods are candidates, how many must go, and deleting them is left to the
// caller. Pods that are finished or being deleted should not be passed; they
// are ranked as any other pod is.
//
//	victims := podrank.Select(active, related, len(active)-want, now)
//	for _, v := range victims {
//		log.Printf("deleting %s/%s: %s", v.Pod.Namespace, v.Pod.Name, podrank.Explain(v))
//		// delete v.Pod, with its UID as a precondition
//	}
//
// The order: unassigned before assigned; Pending before Unknown before Running;
// not ready before ready; lower deletion cost; more related pods on the node;
// ready for less time; more restarts; more sidecar restarts; younger; and at
// last UID, namespace and name. Times are compared by the power of two that
// their age in nanoseconds reaches, so that a pod of six hours and one of eight
// count as equally old.
//
// Differs from Kubernetes: the order is total. Times of one power of two are a
// tie, and the next criterion decides. Upstream's UID decides there at once,
// unless the instants are equal: three pods can then each go before the next,
// and who is deleted depends on the order of the list. The power of two is that
// of the integer; upstream's floating point reaches it up to 5 ns too early for
// ages of more than 6 days, and one too many at 292 years, where ages end.
//
// All functions are pure and safe for concurrent use on pods that nobody
// writes to; none changes a pod.
package podrank

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// ActivePods sorts pods by the six criteria of older releases, the pod to
// delete first coming first (R16): node, phase, readiness, ready time, restarts
// and creation time, without deletion cost and co-location. Times are compared
// as they are: the zero instant first, then the later one. It is the sort of the
// same name in pkg/controller/controller_utils.go.
//
// Pods that agree on all six are equal, whatever their names: the order is not
// total, and sort.Sort leaves equal pods in any order. A nil pod comes first.
// To choose pods use Select, which looks at each pod once, not once a comparison.
type ActivePods []*corev1.Pod

// Len returns the number of pods.
func (s ActivePods) Len() int { return len(s) }

// Swap swaps the pods i and j.
func (s ActivePods) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

// Less reports whether pod i goes before pod j.
func (s ActivePods) Less(i, j int) bool {
	p, q := s[i], s[j]
	if p == nil || q == nil {
		return p == nil && q != nil
	}
	var a, b key
	a.read(p, time.Time{})
	b.read(q, time.Time{})
	a.setCost(0) // came later, as did all that follows CreationTime
	b.setCost(0)
	by, c := compare(p, q, &a, &b)
	return c < 0 && by <= CreationTime
}

// ActivePodsWithRanks sorts pods by the order of the package, the pod to delete
// first coming first (R1-R12). Swap moves a pod with its rank. It is the sort of
// the same name in pkg/controller/controller_utils.go. To choose pods use
// Select, which looks at each pod once, not once a comparison.
//
// Differs from Kubernetes: the order is total, as the package comment says; only
// pods of the same UID, namespace and name can be equal. A nil pod comes first,
// and a missing rank is 0; both panic upstream.
type ActivePodsWithRanks struct {
	// Pods are the pods to sort.
	Pods []*corev1.Pod

	// Rank holds the rank of each pod, the higher going first: ColocationRanks
	// makes it. Nil means that all ranks are 0. Sorting needs it to be nil or as
	// long as Pods: a rank is lost when its pod is moved behind the end of Rank.
	// Ranks beyond 32 bits count as the nearest of 32.
	Rank []int

	// Now is the instant that ages are taken at. If it is zero, times are
	// compared as they are: the zero instant first, then the later one (R8).
	Now metav1.Time
}

// Len returns the number of pods.
func (s ActivePodsWithRanks) Len() int { return len(s.Pods) }

// Swap swaps the pods i and j, and their ranks.
func (s ActivePodsWithRanks) Swap(i, j int) {
	s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i]
	ri, rj := s.rank(i), s.rank(j)
	if i < len(s.Rank) {
		s.Rank[i] = rj
	}
	if j < len(s.Rank) {
		s.Rank[j] = ri
	}
}

// Less reports whether pod i goes before pod j.
func (s ActivePodsWithRanks) Less(i, j int) bool {
	p, q := s.Pods[i], s.Pods[j]
	if p == nil || q == nil {
		return p == nil && q != nil
	}
	a, b := key{rank: rank32(s.rank(i))}, key{rank: rank32(s.rank(j))}
	a.read(p, s.Now.Time)
	b.read(q, s.Now.Time)
	_, c := compare(p, q, &a, &b)
	return c < 0
}

func (s ActivePodsWithRanks) rank(i int) int {
	if i < len(s.Rank) {
		return s.Rank[i]
	}
	return 0
}

func rank32(rank int) int32 { return int32(max(math.MinInt32, min(rank, math.MaxInt32))) }

// ColocationRanks returns for each of the pods the number of active related pods
// on its node, the pod itself among them if it is related (L5). Active means
// neither finished nor being deleted; ready or not makes no difference, whatever
// the comment on the sort in pkg/controller/controller_utils.go says. Unassigned
// pods share the node "" (L6). The rank of a nil pod is 0; no pods give nil.
//
// Each entry of related counts: a caller that collects the pods of several
// owners drops those found twice. Looking for them here would slow down every
// Select, and package replicas has done it already.
func ColocationRanks(pods, related []*corev1.Pod) []int {
	if len(pods) == 0 {
		return nil
	}
	nodes := make([]int32, len(pods))
	c := newCensus(pods, related)
	for i, p := range pods {
		if p != nil {
			nodes[i] = c.visit(i)
		}
	}
	c.finish()
	ranks := make([]int, len(pods))
	for i, node := range nodes {
		ranks[i] = int(c.active[node])
	}
	return ranks
}

// A census counts the active related pods on the nodes of pods.
type census struct {
	pods, related []*corev1.Pod
	numbers       map[string]int32 // of the nodes, from 1
	active        []int32          // on the node of the number; 0 stands for no node of pods
}

func newCensus(pods, related []*corev1.Pod) *census {
	nodes := min(len(pods), 512)
	return &census{pods: pods, related: related, numbers: make(map[string]int32, nodes), active: make([]int32, 1, 1+nodes)}
}

// visit returns the number of the node of pods[i]. The lists are often one: then
// it counts the pod while it is at hand.
func (c *census) visit(i int) (node int32) {
	p := c.pods[i]
	node, ok := c.numbers[p.Spec.NodeName]
	if !ok {
		node = int32(len(c.active))
		c.numbers[p.Spec.NodeName] = node
		c.active = append(c.active, 0)
	}
	if c.visits(i) && pod.IsActive(p) {
		c.active[node]++
	}
	return node
}

// visits reports whether visit(i) counts related[i].
func (c *census) visits(i int) bool {
	return i < len(c.pods) && i < len(c.related) && c.related[i] == c.pods[i]
}

// finish counts the related pods that visit has not, when all pods are visited.
func (c *census) finish() {
	for i, p := range c.related {
		if !c.visits(i) && pod.IsActive(p) {
			c.active[c.numbers[p.Spec.NodeName]]++
		}
	}
	c.active[0] = 0
}
