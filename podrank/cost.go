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

// DeletionCost puts pods with a lower deletion cost first. The comment on ParseDeletionCost
// describes which costs are valid. An invalid cost counts as 0, and Check returns an error for it.
func DeletionCost() Criterion[*corev1.Pod] {
	return Cost[*corev1.Pod]("deletion-cost", corev1.PodDeletionCost) // (R4)
}

// Cost is like DeletionCost, but for objects of any type and for any annotation. The object with
// the lower cost comes first. The value of the annotation must be a signed 32-bit decimal integer.
// If an object does not have the annotation, or if the value is invalid, the cost is 0. Check
// returns an error for an invalid value. If the argument annotation is empty, NewOrder returns an
// error.
func Cost[T metav1.Object](name, annotation string) Criterion[T] {
	cost := func(obj T) int64 {
		n, _ := annotatedCost(obj.GetAnnotations(), annotation)
		return int64(n)
	}
	phrase := strings.ReplaceAll(name, "-", " ") + " " + victimHere + " < " + survivorHere
	c := number(name, phrase, cost, func(text []byte, obj T) []byte { return strconv.AppendInt(text, cost(obj), 10) })
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
// controller.kubernetes.io/pod-deletion-cost. The cost is a signed 32-bit decimal integer, or 0 if
// the annotation does not exist. If the value is invalid, ParseDeletionCost returns 0 and an error
// that quotes the value. Select ignores this error, as Kubernetes does.
//
// Differs from Kubernetes: leading zeros are invalid even after a minus sign. For example, both
// "008" and "-008" are invalid. GetDeletionCostFromPodAnnotations in Kubernetes'
// pkg/apis/core/helper refuses "008", but reads "-008" as -8.
func ParseDeletionCost(annotations map[string]string) (int32, error) {
	cost, ok := annotatedCost(annotations, corev1.PodDeletionCost)
	if !ok {
		return 0, fmt.Errorf("podrank: deletion cost %q is not a decimal number of 32 bits", annotations[corev1.PodDeletionCost])
	}
	return cost, nil
}

// annotatedCost returns the cost in the annotation with the given key. If there is no such
// annotation, annotatedCost returns 0 and true (R5). If the value is invalid, annotatedCost returns
// 0 and false.
func annotatedCost(annotations map[string]string, key string) (cost int32, ok bool) {
	value, ok := annotations[key]
	if !ok {
		return 0, true
	}
	digits := strings.TrimPrefix(value, "-")
	if digits != "0" && (digits == "" || digits[0] < '1') {
		return 0, false // an empty string, a second + or -, a space or a leading zero (W38)
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, false
	}
	return int32(n), true
}
