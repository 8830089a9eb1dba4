// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"

	"github.com/replicakit/replicakit/podrank"
)

// ActivePodsWithRanks is our podrank.ActivePodsWithRanks, which orders pods by all criteria.
type ActivePodsWithRanks podrank.ActivePodsWithRanks

// Less calls the Less method of our podrank.ActivePodsWithRanks. If the feature gate PodDeletionCost is off,
// Less compares the pods by all other criteria.
func (s ActivePodsWithRanks) Less(i, j int) bool {
	if utilfeature.DefaultFeatureGate.Enabled(features.PodDeletionCost) {
		return podrank.ActivePodsWithRanks(s).Less(i, j)
	}
	ranks := map[*corev1.Pod]int{s.Pods[i]: s.Rank[i], s.Pods[j]: s.Rank[j]}
	rank := podrank.By("rank", func(pod *corev1.Pod) int { return ranks[pod] }).Reverse()
	order := podrank.Must(podrank.Must(podrank.Kubernetes().
		Without(podrank.DeletionCost().Name(), podrank.Colocation().Name())).
		Before(podrank.ReadyTime().Name(), rank))
	first := podrank.Select([]*corev1.Pod{s.Pods[i], s.Pods[j]}, 1, podrank.PodOptions{Now: s.Now.Time, Order: order})
	return first[0].Object == s.Pods[i]
}
