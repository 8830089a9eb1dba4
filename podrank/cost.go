package podrank

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeletionCost puts pods of a lower deletion cost first, as ParseDeletionCost
// reads it. An invalid cost counts as 0, and Check reports it.
func DeletionCost() Criterion[*corev1.Pod] {
	return Cost[*corev1.Pod]("deletion-cost", corev1.PodDeletionCost) // (R4)
}

// Cost is DeletionCost for any object: those go first whose annotation states a
// lower number, in decimal and of 32 bits. No annotation is 0; an invalid one
// counts as 0, and Check reports it. NewOrder refuses an annotation without a name.
func Cost[T metav1.Object](name, annotation string) Criterion[T] {
	cost := func(obj T) int64 {
		n, _ := annotatedCost(obj.GetAnnotations(), annotation)
		return int64(n)
	}
	phrase := strings.ReplaceAll(name, "-", " ") + " " + victimHere + " < " + survivorHere
	c := number(name, phrase, 32, func(obj T) int64 { return weighCost(obj.GetAnnotations(), annotation) }, func(obj T) string { return strconv.FormatInt(cost(obj), 10) })
	if annotation == "" {
		c.err = errors.New("annotation has no name")
	}
	c.check = func(obj T) error {
		if _, ok := annotatedCost(obj.GetAnnotations(), annotation); !ok {
			return fmt.Errorf("annotation %q: %q is not a decimal number of 32 bits", annotation, obj.GetAnnotations()[annotation])
		}
		return nil
	}
	return c
}

// ParseDeletionCost returns the deletion cost that a pod's annotations state in
// controller.kubernetes.io/pod-deletion-cost: a decimal number of 32 bits, 0 if
// there is none. An invalid value counts as 0, and the error quotes it. The ranking
// ignores the error, as upstream does, so this is how to notice.
//
// Differs from Kubernetes: zeros behind a sign are refused as those without one
// are. "-008" is as invalid as "008"; GetDeletionCostFromPodAnnotations in
// pkg/apis/core/helper reads it as -8.
func ParseDeletionCost(annotations map[string]string) (int32, error) {
	cost, ok := annotatedCost(annotations, corev1.PodDeletionCost)
	if !ok {
		return 0, fmt.Errorf("podrank: deletion cost %q is not a decimal number of 32 bits", annotations[corev1.PodDeletionCost])
	}
	return cost, nil
}

// weighCost weighs the cost that an annotation states, in 32 bits.
func weighCost(annotations map[string]string, key string) int64 {
	cost, _ := annotatedCost(annotations, key)
	return int64(cost) - math.MinInt32
}

// annotatedCost returns the cost that an annotation states: 0 if there is none
// (R5), 0 and false if it is invalid.
func annotatedCost(annotations map[string]string, key string) (cost int32, ok bool) {
	value, ok := annotations[key]
	if !ok {
		return 0, true
	}
	digits := strings.TrimPrefix(value, "-")
	if digits != "0" && (digits == "" || digits[0] < '1') {
		return 0, false // a second sign, a blank, a leading zero (W38)
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, false
	}
	return int32(n), true
}
