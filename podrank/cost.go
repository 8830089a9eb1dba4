// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"errors"
	"fmt"
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

// Cost is DeletionCost for any object and any annotation. The object with the lower number goes
// first. The number is decimal and has 32 bits. If the annotation is missing or invalid, the cost
// is 0. Check reports an invalid one. NewOrder refuses an empty annotation.
func Cost[T metav1.Object](name, annotation string) Criterion[T] {
	cost := func(obj T) int64 {
		n, _ := annotatedCost(obj.GetAnnotations(), annotation)
		return int64(n)
	}
	phrase := strings.ReplaceAll(name, "-", " ") + " " + victimHere + " < " + survivorHere
	c := number(name, phrase, cost, func(obj T) string { return strconv.FormatInt(cost(obj), 10) })
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

// ParseDeletionCost returns the deletion cost of a pod from its annotation
// controller.kubernetes.io/pod-deletion-cost. It is a decimal number of 32 bits, or 0 if there is
// no annotation. For an invalid value it returns 0 and an error that quotes the value. Select
// ignores this error, as upstream does.
//
// Differs from Kubernetes: leading zeros are refused behind a sign too, so "-008" is invalid like
// "008". GetDeletionCostFromPodAnnotations in pkg/apis/core/helper reads "-008" as -8.
func ParseDeletionCost(annotations map[string]string) (int32, error) {
	cost, ok := annotatedCost(annotations, corev1.PodDeletionCost)
	if !ok {
		return 0, fmt.Errorf("podrank: deletion cost %q is not a decimal number of 32 bits", annotations[corev1.PodDeletionCost])
	}
	return cost, nil
}

// annotatedCost returns the cost in an annotation. It is 0 if there is none (R5), and 0 and false
// if it is invalid.
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
