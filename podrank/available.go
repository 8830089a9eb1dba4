// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// NotAvailable puts unavailable pods before pods that are available at Options.Now. A pod is
// unavailable if it is not ready, or if it has been ready for less than minReadySeconds. If
// minReadySeconds is positive, a pod whose Ready condition has no transition time is unavailable.
// If minReadySeconds is positive and Options.Now is zero, all pods are unavailable. If
// minReadySeconds is negative, NewOrder returns an error.
func NotAvailable(minReadySeconds int32) Criterion[*corev1.Pod] {
	available := func(now time.Time, p *corev1.Pod) bool { return pod.IsAvailable(p, minReadySeconds, now) }
	col := &column[*corev1.Pod]{
		weigh: []weigher[*corev1.Pod]{eachAt(func(p *corev1.Pod, now time.Time) int64 {
			if available(now, p) {
				return 1
			}
			return 0
		})},
		value: func(text []byte, now time.Time, _ int, p *corev1.Pod) []byte {
			if available(now, p) {
				return append(text, "available"...)
			}
			return append(text, "not available"...)
		},
	}
	c := Criterion[*corev1.Pod]{name: "not-available", phrase: victimHere, open: func(Facts[*corev1.Pod]) *column[*corev1.Pod] { return col }}
	if minReadySeconds < 0 {
		c.err = fmt.Errorf("minReadySeconds %d is negative", minReadySeconds)
	}
	return c
}
