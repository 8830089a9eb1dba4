// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A ReplicaSet with twelve pods in each of three zones is scaled from 36 to 24. The order "zones" leaves eight
// pods in each zone (kubernetes#124149, #124306). The order "packed" leaves one node empty.
func TestOrdersInWords(t *testing.T) {
	t.Parallel()
	for words, want := range map[string][]int{"zones": {8, 8, 8}, "packed": {0, 12, 12}} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			order, err := podrank.ParseOrder(words, func(name string) *corev1.Node {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "zone of " + name}}}
			})
			require.NoError(t, err)
			kind := controller.ReplicaSets()
			original := kind.Spec
			kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				spec, err := original(rs)
				spec.Rules.Order = order
				return spec, err
			}
			cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 3})
			require.NoError(t, err)
			createReplicaSet(t, cluster, 36)
			world := replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
			world.Run(time.Minute)
			require.Equal(t, []int{12, 12, 12}, onNodes(cluster))
			_, err = cluster.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 24 })
			require.NoError(t, err)
			world.Run(5 * time.Minute)
			assert.Equal(t, want, onNodes(cluster))
		})
	}
}

// onNodes returns the number of pods on each of the three nodes, in ascending order.
func onNodes(cluster *replicastest.PodCluster) []int {
	counts := map[string]int{}
	for _, p := range cluster.Children(namespace) {
		counts[p.Spec.NodeName]++
	}
	numbers := make([]int, 3-len(counts))
	for _, n := range counts {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}
