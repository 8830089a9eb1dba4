package replicas

import (
	"cmp"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// byUID returns the pods in the order of their UIDs, equal ones in that of the
// list, and one that is listed twice, if any is. UIDs of the API server begin with
// random hexadecimal digits: dealt out to about as many buckets as there are pods
// they are nearly sorted, in a quarter of the time that comparing takes.
func byUID(pods []*corev1.Pod) (ordered []*corev1.Pod, twice *corev1.Pod) {
	width := min(bits.Len(uint(len(pods)))+1, 16)
	buckets, ends := make([]uint16, len(pods)), make([]int32, 1<<width)
	for i, p := range pods {
		digits, ok := leadingDigits(p.UID)
		if !ok {
			ordered = slices.Clone(pods)
			return ordered, sortByUID(ordered)
		}
		buckets[i] = digits >> (16 - width)
		ends[buckets[i]]++
	}
	for b := range ends[1:] {
		ends[b+1] += ends[b]
	}
	ordered = make([]*corev1.Pod, len(pods))
	for i, b := range slices.Backward(buckets) {
		ends[b]-- // and the start of the bucket when all are dealt out
		ordered[ends[b]] = pods[i]
	}
	end := len(pods)
	for _, start := range slices.Backward(ends) {
		if end-int(start) > 1 {
			twice = cmp.Or(sortByUID(ordered[start:end]), twice)
		}
		end = int(start)
	}
	return ordered, twice
}

// sortByUID sorts the pods, equal ones staying in their order, and returns one
// that is listed twice, if any is.
func sortByUID(pods []*corev1.Pod) (twice *corev1.Pod) {
	slices.SortStableFunc(pods, func(p, q *corev1.Pod) int {
		if p.UID != q.UID {
			return cmp.Compare(p.UID, q.UID)
		}
		return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
	})
	for i := 1; i < len(pods); i++ {
		if object.Same(pods[i-1], pods[i]) {
			return pods[i]
		}
	}
	return nil
}

// leadingDigits returns the number that the first four hexadecimal digits of the
// UID are, if it begins with as many.
func leadingDigits(uid types.UID) (digits uint16, ok bool) {
	const hexadecimal = "0123456789abcdef"
	if len(uid) < 4 {
		return 0, false
	}
	for i := range 4 {
		c := uid[i]
		digit := c&15 + c>>6*9 // without a branch that no processor could foresee
		if int(digit) >= len(hexadecimal) || hexadecimal[digit] != c {
			return 0, false
		}
		digits = digits<<4 | uint16(digit)
	}
	return digits, true
}

// inOrder returns the claims with each list in the order of UIDs; concerned are
// all the pods but the ignored ones in this order.
func inOrder(claims selector.Claims[*corev1.Pod], concerned []*corev1.Pod) selector.Claims[*corev1.Pod] {
	lists := []*[]*corev1.Pod{&claims.Ignored}
	if len(claims.Owned) == len(concerned) && len(concerned) > 0 {
		claims.Owned = concerned
	} else {
		lists = append(lists, &claims.Owned, &claims.Adopt, &claims.Release)
	}
	for _, list := range lists {
		if len(*list) > 1 {
			*list, _ = byUID(*list)
		}
	}
	return claims
}
