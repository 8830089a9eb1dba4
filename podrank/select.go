package podrank

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Select returns the n pods to delete first, in that order, each with what
// decided between it and the first survivor. Related are the pods that count for
// co-location (see ColocationRanks); nil or empty means that no pod has a rank.
// Ages are taken at now; if it is zero, times are compared as they are (R8).
//
// The number n is clamped to 0..len(pods). Neither list is changed, and the
// victims are the same whatever the order of either; they point to the pods that
// were passed in. A nil pod is never a victim and never a survivor. A pod listed
// twice counts once; two entries are the same pod if their UIDs are equal, if
// they have none their namespaces and names, and if they have none either only
// the pointers. Of copies that differ, the one that goes first counts. Of pods
// that nothing tells apart, having no UID and no name, the one listed first goes
// first. No victims give nil.
//
// Select takes O(len(pods) + len(related) + n log n) time on average; no order of
// the lists makes it more than that of a sort.
//
// Differs from Kubernetes: getPodsToDelete in pkg/controller/replicaset sorts the
// list of its caller, all of it, and returns it as it is when every pod must go;
// here the order holds then too (D1, D4).
func Select(pods, related []*corev1.Pod, n int, now time.Time) []Victim {
	n = min(n, len(pods))
	if n <= 0 {
		return nil
	}
	r := newRanking(pods, related, now)
	return r.victims(r.first(n+1), n)
}

// A ranking is a list of pods with their keys, and the places in that list, which
// are what is sorted.
type ranking struct {
	pods   []*corev1.Pod
	keys   []key
	places []int32
	now    time.Time
}

func newRanking(pods, related []*corev1.Pod, now time.Time) *ranking {
	if slices.Contains(pods, nil) {
		pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p == nil })
	}
	r := &ranking{
		pods:   pods,
		keys:   make([]key, len(pods)),
		places: make([]int32, len(pods)),
		now:    now,
	}
	var nodes *census
	if len(related) > 0 {
		nodes = newCensus(pods, related)
	}
	for i, p := range pods {
		r.places[i] = int32(i)
		r.keys[i].read(p, now)
		if nodes != nil {
			r.keys[i].rank = nodes.visit(i)
		}
	}
	if nodes != nil {
		nodes.finish()
		for i := range r.keys {
			r.keys[i].rank = nodes.active[r.keys[i].rank]
		}
	}
	return r
}

// compare orders two places: equal pods by which is listed first.
func (r *ranking) compare(i, j int32) int {
	_, c := compare(r.pods[i], r.pods[j], &r.keys[i], &r.keys[j])
	return cmp.Or(c, cmp.Compare(i, j))
}

// first returns the places of the first n different pods in their order, of all
// of them if there are fewer.
func (r *ranking) first(n int) []int32 {
	for m := n; ; m *= 2 { // again only if a pod is listed twice
		found := r.distinct(r.smallest(min(m, len(r.places))), n)
		if len(found) == n || m >= len(r.places) {
			return found
		}
	}
}

// smallest returns at least the first n places in their order. Quickselect
// narrows the places to few more than n, and those are sorted. Pivots that are
// bad again and again lead to sorting more, never to quadratic time.
func (r *ranking) smallest(n int) []int32 {
	lo, hi := 0, len(r.places) // lo <= n <= hi
	for tries := bits.Len(uint(hi)); hi-n > sampleSize && tries > 0; tries-- {
		if middle := lo + r.partition(r.places[lo:hi], n-lo); middle < n {
			lo = middle + 1
		} else {
			hi = middle
		}
	}
	slices.SortFunc(r.places[:hi], r.compare)
	return r.places[:hi]
}

const sampleSize = 64

// partition moves the places that go before one of them to its left and the
// others to its right, and returns where that one ended up: a little behind n if
// a sample is right.
func (r *ranking) partition(places []int32, n int) int {
	step, last := len(places)/sampleSize, len(places)-1
	for i := range sampleSize {
		places[i], places[i*step] = places[i*step], places[i]
	}
	slices.SortFunc(places[:sampleSize], r.compare)
	middle := min(n*sampleSize/len(places)+4, sampleSize-1)
	places[middle], places[last] = places[last], places[middle]
	pivot, left, right := places[last], 0, last-1
	for {
		for left < last && r.compare(places[left], pivot) < 0 {
			left++
		}
		for right > left && r.compare(places[right], pivot) > 0 {
			right--
		}
		if left >= right {
			break
		}
		places[left], places[right] = places[right], places[left]
		left++
		right--
	}
	places[left], places[last] = places[last], places[left]
	return left
}

// distinct returns the first n places that stand for different pods, fewer if
// there are no more.
func (r *ranking) distinct(places []int32, n int) []int32 {
	n = min(n, len(places))
	found := make([]int32, 0, n)
	seen := sightings{uids: make(map[types.UID]struct{}, n)}
	for _, i := range places {
		if len(found) < n && seen.add(r.pods[i]) {
			found = append(found, i)
		}
	}
	return found
}

// sightings are pods seen, each once: known by UID, failing that by namespace
// and name, failing both by pointer.
type sightings struct {
	uids   map[types.UID]struct{}
	others map[sighting]struct{}
}

type sighting struct {
	namespace, name string
	pod             *corev1.Pod
}

// add reports whether the pod is seen for the first time.
func (s *sightings) add(p *corev1.Pod) bool {
	if p.UID != "" {
		n := len(s.uids)
		s.uids[p.UID] = struct{}{}
		return len(s.uids) > n
	}
	if s.others == nil {
		s.others = make(map[sighting]struct{})
	}
	n, other := len(s.others), sighting{pod: p}
	if p.Name != "" {
		other = sighting{namespace: p.Namespace, name: p.Name}
	}
	s.others[other] = struct{}{}
	return len(s.others) > n
}
