// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"fmt"
	"sort"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
)

// BenchmarkSelect chooses a tenth of the pods in a fleet with ten pods on each node.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{10, 500, 5_000, 50_000} {
		pods := podtest.Fleet(n, n/10, 1)
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				podrank.Select(pods, n/10, podrank.PodOptions{Now: podtest.Now, Related: pods})
			}
		})
	}
}

// BenchmarkFloor measures the time of the minimum work that every choice of pods needs. The benchmark reads some
// fields of each pod once, and counts the pods on each node.
func BenchmarkFloor(b *testing.B) {
	for _, n := range []int{10, 500, 5_000, 50_000} {
		pods := podtest.Fleet(n, n/10, 1)
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				readOnce(pods)
			}
		})
	}
}

func readOnce(pods []*corev1.Pod) (sum int, nodes map[string]int) {
	nodes = make(map[string]int, min(len(pods), 512))
	for _, p := range pods {
		nodes[p.Spec.NodeName]++
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			sum++
		}
	}
	return sum, nodes
}

// BenchmarkSort sorts all pods of a fleet with their ranks, as Kubernetes does to choose pods.
func BenchmarkSort(b *testing.B) {
	fleet := podtest.Fleet(5_000, 500, 1)
	pods, ranks := make([]*corev1.Pod, len(fleet)), podrank.ColocationRanks(fleet, fleet)
	b.Run("pods=5000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			copy(pods, fleet)
			rank := append([]int(nil), ranks...)
			sort.Sort(podrank.ActivePodsWithRanks{Pods: pods, Rank: rank, Now: metav1.NewTime(podtest.Now)})
		}
	})
}

// BenchmarkColocationRanks counts related pods in two cases. In the case "same", the list of related pods is the
// list of pods. In the case "shuffled", the list of related pods has the same pods in another order.
func BenchmarkColocationRanks(b *testing.B) {
	pods := podtest.Fleet(5_000, 500, 1)
	for name, related := range map[string][]*corev1.Pod{"same": pods, "shuffled": shuffled(pods, 1)} {
		b.Run("pods=5000/related="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				podrank.ColocationRanks(pods, related)
			}
		})
	}
}
