// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/podrank"
)

// nodesOf returns a function that finds these nodes by name. For any other name, the function returns nil.
func nodesOf(nodes ...*corev1.Node) func(name string) *corev1.Node {
	return func(name string) *corev1.Node {
		if i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name }); i >= 0 {
			return nodes[i]
		}
		return nil
	}
}

func nodeIn(name, zone string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if zone != "" {
		n.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	return n
}

func TestParseOrder(t *testing.T) {
	t.Parallel()
	const head, tail = "unassigned, phase, not-ready, ", "colocation, ready-time, restarts, sidecar-restarts, creation-time"
	for words, want := range map[string]string{
		"kubernetes":           podrank.Kubernetes().String(),
		"packed":               head + "packed, deletion-cost, " + tail,
		"newest":               head + "newest, deletion-cost, " + tail,
		"kubernetes,packed":    head + "packed, deletion-cost, " + tail,
		"zones, leaving":       head + "zones, node-leaving, deletion-cost, " + tail,
		"deletion-cost,packed": head + "deletion-cost, packed, " + tail,
	} {
		order, err := podrank.ParseOrder(words, nodesOf())
		require.NoError(t, err, words)
		assert.Equal(t, want, order.String(), words)
	}
	for words, want := range map[string]string{
		"":              `podrank: order "": "" is not one of deletion-cost, kubernetes, leaving, newest, packed, zones`,
		"packed,":       `podrank: order "packed,": "" is not one of `,
		"Packed":        `podrank: order "Packed": "Packed" is not one of `,
		"packed,packed": `podrank: order "packed,packed": "packed" is listed twice`,

		"kubernetes, kubernetes": `podrank: order "kubernetes, kubernetes": "kubernetes" is listed twice`,
	} {
		_, err := podrank.ParseOrder(words, nodesOf())
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, podrank.ErrNoNodes)
	}
	for _, words := range []string{"zones", "packed,leaving"} {
		_, err := podrank.ParseOrder(words, nil)
		require.ErrorIs(t, err, podrank.ErrNoNodes)
	}
}

// In Kubernetes' order, two ages that round down to the same power of two are equal, and then restarts and UIDs
// decide. The order "newest" compares the exact creation times.
func TestNewestGoesByTheExactInstant(t *testing.T) {
	t.Parallel()
	older, newer := replica("older", "node", 12*time.Hour+time.Second), replica("newer", "node", 12*time.Hour)
	older.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3}}
	gone := func(words string) string {
		order, err := podrank.ParseOrder(words, nil)
		require.NoError(t, err)
		return podrank.Select([]*corev1.Pod{older, newer}, 1, podrank.PodOptions{Now: now, Order: order})[0].Object.Name
	}
	assert.Equal(t, "older", gone("kubernetes"))
	assert.Equal(t, "newer", gone("newest"))
}

// In the example of KEP-5982, replicas on three nodes are scaled down to a number that fits on one node.
// Kubernetes' order empties no node, but the order "packed" empties two nodes.
func TestPackedEmptiesNodes(t *testing.T) {
	t.Parallel()
	var pods []*corev1.Pod
	for i := range 9 {
		pods = append(pods, replica(fmt.Sprint("web-", i), fmt.Sprint("node-", i%3), time.Hour))
	}
	left := func(words string) map[string]int {
		order, err := podrank.ParseOrder(words, nil)
		require.NoError(t, err)
		gone := podrank.Select(pods, 6, podrank.PodOptions{Now: now, Related: pods, Order: order})
		counts := map[string]int{}
		for _, p := range pods {
			if !slices.ContainsFunc(gone, func(v podrank.Victim[*corev1.Pod]) bool { return v.Object == p }) {
				counts[p.Spec.NodeName]++
			}
		}
		return counts
	}
	assert.Equal(t, map[string]int{"node-2": 3}, left("packed"))
	assert.Len(t, left("kubernetes"), 3, "no node is emptied")
}

func TestZonesStayEven(t *testing.T) {
	t.Parallel()
	var pods []*corev1.Pod
	for i := range 36 { // the pods of zone a are the youngest, so Kubernetes deletes them first
		pods = append(pods, replica(fmt.Sprintf("web-%02d", i), "node-"+string("abc"[i/12]), time.Hour<<(i/12)))
	}
	node := nodesOf(nodeIn("node-a", "a"), nodeIn("node-b", "b"), nodeIn("node-c", "c"))
	gone := func(words string) map[string]int {
		order, err := podrank.ParseOrder(words, node)
		require.NoError(t, err)
		counts := map[string]int{}
		for _, v := range podrank.Select(pods, 12, podrank.PodOptions{Now: now, Order: order}) {
			counts[v.Object.Spec.NodeName]++
		}
		return counts
	}
	assert.Equal(t, map[string]int{"node-a": 12}, gone("kubernetes"))
	assert.Equal(t, map[string]int{"node-a": 4, "node-b": 4, "node-c": 4}, gone("zones"))
}

func TestWhichNodesAreLeaving(t *testing.T) {
	t.Parallel()
	cordoned, deleted, scaled, disrupted := nodeIn("n", ""), nodeIn("n", ""), nodeIn("n", ""), nodeIn("n", "")
	cordoned.Spec.Unschedulable = true
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	scaled.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
	disrupted.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted"}}
	tainted := nodeIn("n", "")
	tainted.Spec.Taints = []corev1.Taint{{Key: "gpu"}}
	pods := []*corev1.Pod{replica("young", "other", time.Minute), replica("old", "n", 48*time.Hour), replica("pending", "", time.Hour)}
	pods[2].Status.Phase = corev1.PodPending
	for name, row := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"cordoned":                   {cordoned, "old"},
		"being deleted":              {deleted, "old"},
		"removed by the autoscaler":  {scaled, "old"},
		"removed by Karpenter":       {disrupted, "old"},
		"only tainted":               {tainted, "young"},
		"a node that nobody has yet": {nodeIn("another", ""), "young"},
	} {
		order, err := podrank.ParseOrder("leaving,zones", nodesOf(row.node))
		require.NoError(t, err)
		victims := podrank.Select(pods, 2, podrank.PodOptions{Now: now, Order: order})
		assert.Equal(t, "pending", victims[0].Object.Name, "it does no work")
		assert.Equal(t, row.want, victims[1].Object.Name, name)
	}
}
